// LinearBlocks: the sums of 64 rows by 64 outputs of a product, that kernels of products share.
//
// REQUIRES: kLinearWaves waves for tiles, kLinearThreadsF32 threads for fused sums; all threads of the block come.
#pragma once

#include "kernels/gpu/linear.h"
#include "kernels/gpu/tile.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// Of a row in shared memory: the next one begins in other banks.
constexpr int kLinearStride = kLinearDepth + 8, kLinearShared = kLinearRows * kLinearStride;
static_assert(kLinearRows == kLinearOutputs, "x and w are loaded by one function");

// Rows [begin, end) of a matrix [.., k], of which a block takes the first 64; zeros past its ends.
template <class E>
struct LinearRows {
  const E* data;
  int64_t begin, end, k;
};

template <class E, class From>
MR_DEVICE E converted(From v) {
  if constexpr (sizeof(E) == sizeof(From)) return v;
  if constexpr (sizeof(E) != sizeof(From)) return narrow_to<E>(widen(v));
}

// Columns [k_begin, k_begin + kLinearDepth), rounded to E.
template <class E, class From>
MR_DEVICE void load_linear_rows(Shared<E> to, const LinearRows<From>& from, int64_t k_begin,
                                int threads) {
  for (int i = thread(); i < kLinearRows * kLinearDepth; i += threads) {
    const int64_t row = from.begin + i / kLinearDepth, k = k_begin + i % kLinearDepth;
    const bool inside = row < from.end && k < from.k;
    store(to + (i / kLinearDepth * kLinearStride + i % kLinearDepth),
          inside ? converted<E>(load(from.data + (row * from.k + k))) : E{});
  }
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

// put(row, output, sum) for every sum of the block that this thread has; x is rounded to bf16.
template <class X, class Put>
MR_DEVICE void each_output_by_tiles(const LinearRows<X>& x_rows, const LinearRows<BF16>& w_rows,
                                    const Put& put) {
  MR_SHARED(BF16, x, kLinearShared);
  MR_SHARED(BF16, w, kLinearShared);
  const int quarter = thread() / kWave;
  const bool any = x_rows.begin + quarter / 2 * 2 * kTile < x_rows.end &&
                   w_rows.begin + quarter % 2 * 2 * kTile < w_rows.end;
  SumTile sum[2][2] = {};
  for (int64_t k = 0; k < x_rows.k; k += kLinearDepth) {
    load_linear_rows<BF16>(x, x_rows, k, kLinearWaves * kWave);
    load_linear_rows<BF16>(w, w_rows, k, kLinearWaves * kWave);
    sync_block();
    if (any) multiply_quarter(sum, x, w);
    sync_block();
  }
  MR_UNROLL for (int i = 0; i < 4; ++i) {
    const int row = (quarter / 2 * 2 + i / 2) * kTile, output = (quarter % 2 * 2 + i % 2) * kTile;
    each_sum(sum[i / 2][i % 2], [&](int r, int c, float v) { put(row + r, output + c, v); });
  }
}

// The same in f32: 4 x 4 outputs for each thread.
template <class Put>
MR_DEVICE void each_output_fused(const LinearRows<float>& x_rows, const LinearRows<float>& w_rows,
                                 const Put& put) {
  MR_SHARED(float, x, kLinearShared);
  MR_SHARED(float, w, kLinearShared);
  const int row = thread() / 16 * 4, output = thread() % 16 * 4;
  float sum[4][4] = {};
  for (int64_t k_begin = 0; k_begin < x_rows.k; k_begin += kLinearDepth) {
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
  MR_UNROLL for (int i = 0; i < 16; ++i) put(row + i / 4, output + i % 4, sum[i / 4][i % 4]);
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
