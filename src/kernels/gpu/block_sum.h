// BlockSum: a sum over the threads of a block, in an order that no wave size changes.
//
//   32 threads that follow each other by five shuffles (a tree), then the sums of 32 ascending. Every thread gets it.
//
// REQUIRES: all threads of the block come; the block has `threads`, a multiple of 64.
#pragma once

#include "kernels/gpu/device.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

constexpr int kSumLanes = 32;

template <int threads>
MR_DEVICE float block_sum(float v) {
  MR_SHARED(float, parts, threads / kSumLanes);
  for (int mask = 1; mask < kSumLanes; mask *= 2) v += shuffle_xor(v, mask);
  if (thread() % kSumLanes == 0) store(parts + thread() / kSumLanes, v);
  sync_block();
  float sum = 0;
  for (int i = 0; i < threads / kSumLanes; ++i) sum += load(parts + i);
  return sum;
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
