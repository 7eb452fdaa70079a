// BlockSum: a sum, or the largest, over the threads of a block, in an order that no wave size changes.
//
//   32 threads that follow each other by five shuffles (a tree), then the sums of 32 ascending. Every thread gets it.
//
// REQUIRES: all threads of the block come, and meet at a barrier before they come again; the block has `threads`, a
// multiple of 64.
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

template <int threads>
MR_DEVICE float block_max(float v) {
  MR_SHARED(float, parts, threads / kSumLanes);
  for (int mask = 1; mask < kSumLanes; mask *= 2) {
    const float other = shuffle_xor(v, mask);
    v = other > v ? other : v;
  }
  if (thread() % kSumLanes == 0) store(parts + thread() / kSumLanes, v);
  sync_block();
  float largest = load(parts);
  for (int i = 1; i < threads / kSumLanes; ++i) {
    const float other = load(parts + i);
    largest = other > largest ? other : largest;
  }
  return largest;
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
