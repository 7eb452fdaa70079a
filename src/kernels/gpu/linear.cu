// Linear, device side: find the block's rows, write what they sum to.
#include "kernels/gpu/linear_blocks.h"
#include "kernels/gpu/linear_outputs.h"
#include "kernels/gpu/product_block.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// Outputs of a block that is whole: no comparison for each, and those that are next to each other at once.
template <class Y, ProductShape S>
MR_DEVICE void store_whole(const LinearArgs& a, const LinearBlock& b, WaveSums<S>& sums) {
  const TileCell first = sums.first_cell();
  const int64_t t = b.row_begin + first.row, j = b.output_begin + first.column;
  Y* const y = static_cast<Y*>(a.y) + (t * a.n + j);
  const float* const bias = a.bias == nullptr ? nullptr : a.bias + (b.group * a.n + j);
  sums.each_run([&](const float* v, int down, int across) {
    SumRun<Y> run;
    MR_UNROLL for (int e = 0; e < kSumRun; ++e) {
      run.v[e] = narrow_to<Y>(bias == nullptr ? v[e] : v[e] + load(bias + (across + e)));
    }
    store_run(y + (down * a.n + across), run);
  });
}

template <class Y, ProductShape S>
MR_DEVICE void linear_tiles(const LinearArgs& a) {
  const LinearBlock b = find_block(a, S.rows, S.columns);
  if (b.group < 0) return;
  const MatrixLines rows = {static_cast<const BF16*>(a.x), b.row_begin, b.row_end, a.k};
  const MatrixLines outputs = {static_cast<const BF16*>(a.w) + b.group * a.n * a.k, b.output_begin,
                               a.n, a.k};
  WaveSums<S> sums = {};
  const bool any = b.row_begin + sums.row() < b.row_end && b.output_begin + sums.column() < a.n;
  add_product<S>(sums, RowsByLines<S>(rows), ColumnsByLines<S>(outputs), {a.k, any},
                 [](Shared<Chunk>) {});
  const bool whole = b.row_begin + S.rows <= b.row_end && b.output_begin + S.columns <= a.n &&
                     lines_are_aligned<SumRun<Y>>(static_cast<const Y*>(a.y), a.n);
  if (whole) {
    store_whole<Y, S>(a, b, sums);
  } else if (any) {
    sums.each([&](int row, int output, float v) { store_output<Y>(a, b, row, output, v); });
  }
}

MR_DEVICE void linear_fused(const LinearArgs& a) {
  const LinearBlock b = find_block(a);
  if (b.group < 0) return;
  const LinearRows rows = {static_cast<const float*>(a.x), b.row_begin, b.row_end, a.k};
  const LinearRows outputs = {static_cast<const float*>(a.w) + b.group * a.n * a.k, b.output_begin,
                              a.n, a.k};
  each_output_fused(rows, outputs, [&](int row, int output, float v) {
    store_output<float>(a, b, row, output, v);
  });
}

MR_KERNEL(linear_bf16, kProduct.waves() * kWave, LinearArgs a) { linear_tiles<BF16, kProduct>(a); }
MR_KERNEL(linear_bf16_to_f32, kProduct.waves() * kWave, LinearArgs a) {
  linear_tiles<float, kProduct>(a);
}
MR_KERNEL(linear_bf16_narrow, kNarrowProduct.waves() * kWave, LinearArgs a) {
  linear_tiles<BF16, kNarrowProduct>(a);
}
MR_KERNEL(linear_bf16_to_f32_narrow, kNarrowProduct.waves() * kWave, LinearArgs a) {
  linear_tiles<float, kNarrowProduct>(a);
}
MR_KERNEL(linear_bf16_large, kLargeProduct.waves() * kWave, LinearArgs a) {
  linear_tiles<BF16, kLargeProduct>(a);
}
MR_KERNEL(linear_bf16_to_f32_large, kLargeProduct.waves() * kWave, LinearArgs a) {
  linear_tiles<float, kLargeProduct>(a);
}
MR_KERNEL(linear_f32, kLinearThreadsF32, LinearArgs a) { linear_fused(a); }

template <class E>
MR_DEVICE void pack_element(const PackArgs& a) {
  const int64_t i = block_x() * kPackThreads + thread();
  if (i >= a.groups * a.n * a.k) return;
  store(static_cast<E*>(a.packed) + i, narrow_to<E>(load(a.w + i)));
}

// A square of kPackSquare^2 elements through shared memory, so that lanes read and write what lies together.
template <class E>
MR_DEVICE void pack_transposed(const PackArgs& a) {
  constexpr int kStride = kPackSquare + 1, kRound = kPackThreads / kPackSquare;
  MR_SHARED(float, square, kPackSquare* kStride);
  const int64_t across = (a.k + kPackSquare - 1) / kPackSquare, group = block_y() * a.n * a.k;
  const int64_t row = block_x() / across * kPackSquare, term = block_x() % across * kPackSquare;
  const int line = thread() / kPackSquare, lane_of_line = thread() % kPackSquare;
  for (int i = line; i < kPackSquare; i += kRound) {
    const int64_t k = term + i, n = row + lane_of_line;
    const bool inside = k < a.k && n < a.n;
    store(square + (i * kStride + lane_of_line), inside ? load(a.w + (group + k * a.n + n)) : 0.0f);
  }
  sync_block();
  for (int i = line; i < kPackSquare; i += kRound) {
    const int64_t n = row + i, k = term + lane_of_line;
    if (k >= a.k || n >= a.n) continue;
    store(static_cast<E*>(a.packed) + (group + n * a.k + k),
          narrow_to<E>(load(square + (lane_of_line * kStride + i))));
  }
}

MR_KERNEL(pack_f32, kPackThreads, PackArgs a) { pack_element<float>(a); }
MR_KERNEL(pack_bf16, kPackThreads, PackArgs a) { pack_element<BF16>(a); }
MR_KERNEL(pack_transposed_f32, kPackThreads, PackArgs a) { pack_transposed<float>(a); }
MR_KERNEL(pack_transposed_bf16, kPackThreads, PackArgs a) { pack_transposed<BF16>(a); }

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
