// Linear, device side: find the block's rows, walk k, write.
#include "kernels/gpu/linear.h"
#include "kernels/gpu/tile.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// The rows and outputs of a block.
struct LinearBlock {
  int64_t group;  // -1: none
  int64_t row_begin, row_end, output_begin;
};

// Where the rows of group g begin; g may be the number of groups.
MR_DEVICE int64_t group_begin(const LinearArgs& a, int64_t g) {
  return a.rows == nullptr ? g * a.group_rows : load(a.rows + g);
}

// Row tiles are counted group by group.
MR_DEVICE LinearBlock find_block(const LinearArgs& a) {
  int64_t tile = block_y();
  for (int64_t g = 0; g < a.groups; ++g) {
    const int64_t begin = group_begin(a, g), end = group_begin(a, g + 1);
    const int64_t tiles = (end - begin + kLinearRows - 1) / kLinearRows;
    if (tile < tiles) return {g, begin + tile * kLinearRows, end, block_x() * kLinearOutputs};
    tile -= tiles;
  }
  return {-1, 0, 0, 0};
}

// Of a row in shared memory: the next one begins in other banks.
constexpr int kLinearStride = kLinearDepth + 8, kLinearShared = kLinearRows * kLinearStride;
static_assert(kLinearRows == kLinearOutputs, "x and w are loaded by one function");

// `count` rows of a matrix [.., k] from `begin` on, columns [k_begin, k_begin + kLinearDepth); zeros past its ends.
template <class E>
struct LinearRows {
  const E* data;
  int64_t begin, end, k;
};
template <class E>
MR_DEVICE void load_linear_rows(Shared<E> to, const LinearRows<E>& from, int64_t k_begin,
                                int threads) {
  for (int i = thread(); i < kLinearRows * kLinearDepth; i += threads) {
    const int64_t row = from.begin + i / kLinearDepth, k = k_begin + i % kLinearDepth;
    const bool inside = row < from.end && k < from.k;
    store(to + (i / kLinearDepth * kLinearStride + i % kLinearDepth),
          inside ? load(from.data + (row * from.k + k)) : E{});
  }
}

// One output of the block, if it is inside.
template <class Y>
MR_DEVICE void store_output(const LinearArgs& a, const LinearBlock& b, int row, int output,
                            float v) {
  const int64_t t = b.row_begin + row, j = b.output_begin + output;
  if (t >= b.row_end || j >= a.n) return;
  if (a.bias != nullptr) v += load(a.bias + (b.group * a.n + j));
  store(static_cast<Y*>(a.y) + (t * a.n + j), narrow_to<Y>(v));
}

// A quarter of the block for each wave: 2 x 2 tiles.
MR_DEVICE void multiply_quarter(SumTile (&sum)[2][2], Shared<BF16> x, Shared<BF16> w) {
  const int quarter = thread() / kWave;
  const Shared<BF16> rows = x + quarter / 2 * 2 * kTile * kLinearStride;
  const Shared<BF16> outputs = w + quarter % 2 * 2 * kTile * kLinearStride;
  MR_UNROLL for (int k_begin = 0; k_begin < kLinearDepth; k_begin += kTile) {
    LeftTile left[2];
    RightTile right[2];
    MR_UNROLL for (int t = 0; t < 2; ++t) {
      left[t] = left_tile([&](int i, int k) {
        return load(rows + ((t * kTile + i) * kLinearStride + k_begin + k));
      });
      right[t] = right_tile([&](int k, int j) {
        return load(outputs + ((t * kTile + j) * kLinearStride + k_begin + k));
      });
    }
    MR_UNROLL for (int i = 0; i < 2; ++i) {
      MR_UNROLL for (int j = 0; j < 2; ++j) multiply_add(sum[i][j], left[i], right[j]);
    }
  }
}

template <class Y>
MR_DEVICE void linear_tiles(const LinearArgs& a) {
  MR_SHARED(BF16, x, kLinearShared);
  MR_SHARED(BF16, w, kLinearShared);
  const LinearBlock b = find_block(a);
  if (b.group < 0) return;
  const LinearRows<BF16> x_rows = {static_cast<const BF16*>(a.x), b.row_begin, b.row_end, a.k};
  const LinearRows<BF16> w_rows = {static_cast<const BF16*>(a.w) + b.group * a.n * a.k,
                                   b.output_begin, a.n, a.k};
  const int quarter = thread() / kWave;
  const bool any = b.row_begin + quarter / 2 * 2 * kTile < b.row_end &&
                   b.output_begin + quarter % 2 * 2 * kTile < a.n;
  SumTile sum[2][2] = {};
  for (int64_t k = 0; k < a.k; k += kLinearDepth) {
    load_linear_rows<BF16>(x, x_rows, k, kLinearWaves * kWave);
    load_linear_rows<BF16>(w, w_rows, k, kLinearWaves * kWave);
    sync_block();
    if (any) multiply_quarter(sum, x, w);
    sync_block();
  }
  MR_UNROLL for (int i = 0; i < 4; ++i) {
    const int row = (quarter / 2 * 2 + i / 2) * kTile, output = (quarter % 2 * 2 + i % 2) * kTile;
    each_sum(sum[i / 2][i % 2],
             [&](int r, int c, float v) { store_output<Y>(a, b, row + r, output + c, v); });
  }
}

// 4 x 4 outputs for each thread.
MR_DEVICE void linear_fused(const LinearArgs& a) {
  MR_SHARED(float, x, kLinearShared);
  MR_SHARED(float, w, kLinearShared);
  const LinearBlock b = find_block(a);
  if (b.group < 0) return;
  const LinearRows<float> x_rows = {static_cast<const float*>(a.x), b.row_begin, b.row_end, a.k};
  const LinearRows<float> w_rows = {static_cast<const float*>(a.w) + b.group * a.n * a.k,
                                    b.output_begin, a.n, a.k};
  const int row = thread() / 16 * 4, output = thread() % 16 * 4;
  float sum[4][4] = {};
  for (int64_t k_begin = 0; k_begin < a.k; k_begin += kLinearDepth) {
    load_linear_rows<float>(x, x_rows, k_begin, kLinearThreadsF32);
    load_linear_rows<float>(w, w_rows, k_begin, kLinearThreadsF32);
    sync_block();
    for (int k = 0; k < kLinearDepth; ++k) {
      float left[4], right[4];
      MR_UNROLL for (int i = 0; i < 4; ++i) {
        left[i] = load(x + ((row + i) * kLinearStride + k));
        right[i] = load(w + ((output + i) * kLinearStride + k));
      }
      MR_UNROLL for (int i = 0; i < 16; ++i) {
        sum[i / 4][i % 4] = fused(left[i / 4], right[i % 4], sum[i / 4][i % 4]);
      }
    }
    sync_block();
  }
  MR_UNROLL for (int i = 0; i < 16; ++i) {
    store_output<float>(a, b, row + i / 4, output + i % 4, sum[i / 4][i % 4]);
  }
}

MR_KERNEL(linear_bf16, kLinearWaves* kWave, LinearArgs a) { linear_tiles<BF16>(a); }
MR_KERNEL(linear_bf16_to_f32, kLinearWaves* kWave, LinearArgs a) { linear_tiles<float>(a); }
MR_KERNEL(linear_f32, kLinearThreadsF32, LinearArgs a) { linear_fused(a); }

template <class E>
MR_DEVICE void pack_element(const PackArgs& a) {
  const int64_t i = block_x() * kPackThreads + thread();
  if (i >= a.groups * a.n * a.k) return;
  const int64_t g = i / (a.n * a.k), j = i / a.k % a.n, k = i % a.k;
  const int64_t from = a.transpose ? (g * a.k + k) * a.n + j : i;
  store(static_cast<E*>(a.packed) + i, narrow_to<E>(load(a.w + from)));
}

MR_KERNEL(pack_f32, kPackThreads, PackArgs a) { pack_element<float>(a); }
MR_KERNEL(pack_bf16, kPackThreads, PackArgs a) { pack_element<BF16>(a); }

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
