// LinearBlocks: the sums of 64 rows by 64 outputs of a product in f32, that kernels of products share. bf16:
// product_block.h.
//
// REQUIRES: kLinearThreadsF32 threads, all of which come.
#pragma once

#include "kernels/gpu/device.h"
#include "kernels/gpu/linear.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// Of a row in shared memory: the next one begins in other banks.
constexpr int kLinearStride = kLinearDepth + 8, kLinearShared = kLinearRows * kLinearStride;
static_assert(kLinearRows == kLinearOutputs, "x and w are loaded by one function");

// Rows [begin, end) of a matrix [.., k], of which a block takes the first 64; zeros past its ends.
struct LinearRows {
  const float* data;
  int64_t begin, end, k;
};

// Columns [k_begin, k_begin + kLinearDepth).
MR_DEVICE void load_linear_rows(Shared<float> to, const LinearRows& from, int64_t k_begin) {
  for (int i = thread(); i < kLinearRows * kLinearDepth; i += kLinearThreadsF32) {
    const int64_t row = from.begin + i / kLinearDepth, k = k_begin + i % kLinearDepth;
    const bool inside = row < from.end && k < from.k;
    store(to + (i / kLinearDepth * kLinearStride + i % kLinearDepth),
          inside ? load(from.data + (row * from.k + k)) : 0.0f);
  }
}

// put(row, output, sum) for every sum of the block that this thread has: 4 x 4.
template <class Put>
MR_DEVICE void each_output_fused(const LinearRows& x_rows, const LinearRows& w_rows,
                                 const Put& put) {
  MR_SHARED(float, x, kLinearShared);
  MR_SHARED(float, w, kLinearShared);
  const int row = thread() / 16 * 4, output = thread() % 16 * 4;
  float sum[4][4] = {};
  for (int64_t k_begin = 0; k_begin < x_rows.k; k_begin += kLinearDepth) {
    load_linear_rows(x, x_rows, k_begin);
    load_linear_rows(w, w_rows, k_begin);
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
