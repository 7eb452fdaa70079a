// LinearQuantised, device side: rows and weights of a block of inputs into shared memory, then dots of four.
#include "kernels/gpu/linear_quantised.h"

#include "kernels/gpu/linear_outputs.h"
#include "kernels/gpu/quantised_pack.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

constexpr int kRowThreads = kQuantisedThreads / kLinearRows;   // that make a row integers
constexpr int kThreadInputs = kQuantisedInputs / kRowThreads;  // of each of them
constexpr int kThreadColumns = kQuantisedThreads / 16;  // from an output of a thread to its next
constexpr int kFourStride = kQuantisedFours + 1;        // the next row begins in another bank

// A block of inputs of the block's rows and outputs.
struct QuantisedTile {
  Shared<int32_t> row, weight;  // [64 rows][kFourStride] and [32][64 outputs] words of four
  Shared<float> step, scale;    // of a row, of an output
};

struct RowStep {
  float step, inverse;  // as quantised_step (kernels/quantised.h)
};
MR_DEVICE RowStep row_step(int32_t largest_bits) {
  if (largest_bits >= 0x7f800000) return {from_bits(0x7fc00000u), 0};
  const float largest = from_bits(static_cast<uint32_t>(largest_bits));
  if (largest < 0x1p-100f) return {0, 0};  // kLeastBlock
  return {largest / 127, 127 / largest};
}

// The low byte of the nearest integer, to even on a tie; |value| < 2^22. What is added leaves no bits for a fraction.
MR_DEVICE uint32_t nearest_byte(float value) { return bits_of(value + 0x1.8p23f) & 0xffu; }

// Sizes of numbers are ordered as their bits; those of an infinity or a NaN are above all others.
MR_DEVICE int32_t larger_size(int32_t size, float v) {
  const auto other = static_cast<int32_t>(bits_of(v) & 0x7fffffffu);
  return other > size ? other : size;
}

template <class X>
MR_DEVICE void load_rows_as_integers(const QuantisedTile& to, const LinearArgs& a,
                                     const LinearBlock& b, int64_t block) {
  const int row = thread() / kRowThreads, part = thread() % kRowThreads;
  const int64_t t = b.row_begin + row, begin = block * kQuantisedInputs + part * kThreadInputs;
  float v[kThreadInputs];
  int32_t largest = 0;
  MR_UNROLL for (int i = 0; i < kThreadInputs; ++i) {
    const bool inside = t < b.row_end && begin + i < a.k;
    v[i] = inside ? widen(load(static_cast<const X*>(a.x) + (t * a.k + begin + i))) : 0.0f;
    largest = larger_size(largest, v[i]);
  }
  MR_UNROLL for (int mask = 1; mask < kRowThreads; mask *= 2) {
    largest = larger_size(largest, shuffle_xor(from_bits(static_cast<uint32_t>(largest)), mask));
  }
  const RowStep step = row_step(largest);
  if (part == 0) store(to.step + row, step.step);
  MR_UNROLL for (int i = 0; i < kThreadInputs; i += 4) {
    uint32_t four = 0;
    MR_UNROLL for (int e = 0; e < 4; ++e) {
      const float r = step.inverse == 0 ? 0.0f : v[i + e] * step.inverse;  // 0, not NaN
      four |= nearest_byte(r) << 8 * e;
    }
    store(to.row + (row * kFourStride + part * (kThreadInputs / 4) + i / 4),
          static_cast<int32_t>(four));
  }
}

template <int kBits>
MR_DEVICE void load_weights(const QuantisedTile& to, const LinearArgs& a, const LinearBlock& b,
                            int64_t block) {
  const int64_t panels = (a.n + kQuantisedColumns - 1) / kQuantisedColumns;
  for (int i = thread(); i < kQuantisedFours * kLinearOutputs; i += kQuantisedThreads) {
    const int four = i / kLinearOutputs, output = i % kLinearOutputs;
    const int64_t panel = (b.output_begin + output) / kQuantisedColumns;
    const bool inside = panel < panels;
    const uint32_t* const from =
        quantised_block<kBits>(a.w, a.k, b.group * panels + (inside ? panel : 0), block);
    const int column = output % kQuantisedColumns;
    store(to.weight + i, inside ? quantised_four<kBits>(from, four, column) : 0);
    if (four == 0) store(to.scale + output, inside ? quantised_scale<kBits>(from, column) : 0.0f);
  }
}

// y[4 i + j] += of row i and output j of this thread.
MR_DEVICE void add_block(float (&y)[16], const QuantisedTile& tile, int row, int output) {
  int32_t sum[16] = {};
  for (int four = 0; four < kQuantisedFours; ++four) {
    int32_t left[4], right[4];
    MR_UNROLL for (int i = 0; i < 4; ++i) {
      left[i] = load(tile.row + ((row + i) * kFourStride + four));
      right[i] = load(tile.weight + (four * kLinearOutputs + output + i * kThreadColumns));
    }
    MR_UNROLL for (int i = 0; i < 16; ++i) sum[i] = dot4(left[i / 4], right[i % 4], sum[i]);
  }
  float step[4], scale[4];
  MR_UNROLL for (int i = 0; i < 4; ++i) {
    step[i] = load(tile.step + (row + i));
    scale[i] = load(tile.scale + (output + i * kThreadColumns));
  }
  MR_UNROLL for (int i = 0; i < 16; ++i) {
    y[i] = fused(static_cast<float>(sum[i]), step[i / 4] * scale[i % 4], y[i]);
  }
}

template <class X, class Y, int kBits>
MR_DEVICE void linear_quantised(const LinearArgs& a) {
  MR_SHARED(int32_t, row_words, kLinearRows * kFourStride);
  MR_SHARED(int32_t, weight_words, kQuantisedFours * kLinearOutputs);
  MR_SHARED(float, steps, kLinearRows);
  MR_SHARED(float, scales, kLinearOutputs);
  const LinearBlock b = find_block(a);
  if (b.group < 0) return;
  const QuantisedTile tile = {row_words, weight_words, steps, scales};
  const int row = thread() / kThreadColumns * 4, output = thread() % kThreadColumns;
  const bool any = b.row_begin + row < b.row_end && b.output_begin + output < a.n;
  float y[16] = {};
  for (int64_t block = 0; block < quantised_blocks(a.k); ++block) {
    load_rows_as_integers<X>(tile, a, b, block);
    load_weights<kBits>(tile, a, b, block);
    sync_block();
    if (any) add_block(y, tile, row, output);
    sync_block();
  }
  MR_UNROLL for (int i = 0; i < 16; ++i) {
    store_output<Y>(a, b, row + i / 4, output + i % 4 * kThreadColumns, y[i]);
  }
}

MR_KERNEL(linear_q8_f32, kQuantisedThreads, LinearArgs a) { linear_quantised<float, float, 8>(a); }
MR_KERNEL(linear_q8_bf16, kQuantisedThreads, LinearArgs a) { linear_quantised<BF16, BF16, 8>(a); }
MR_KERNEL(linear_q8_bf16_to_f32, kQuantisedThreads, LinearArgs a) {
  linear_quantised<BF16, float, 8>(a);
}
MR_KERNEL(linear_q6_f32, kQuantisedThreads, LinearArgs a) { linear_quantised<float, float, 6>(a); }
MR_KERNEL(linear_q6_bf16, kQuantisedThreads, LinearArgs a) { linear_quantised<BF16, BF16, 6>(a); }
MR_KERNEL(linear_q6_bf16_to_f32, kQuantisedThreads, LinearArgs a) {
  linear_quantised<BF16, float, 6>(a);
}
MR_KERNEL(linear_q4_f32, kQuantisedThreads, LinearArgs a) { linear_quantised<float, float, 4>(a); }
MR_KERNEL(linear_q4_bf16, kQuantisedThreads, LinearArgs a) { linear_quantised<BF16, BF16, 4>(a); }
MR_KERNEL(linear_q4_bf16_to_f32, kQuantisedThreads, LinearArgs a) {
  linear_quantised<BF16, float, 4>(a);
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
