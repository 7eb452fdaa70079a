// HeadChannel: a channel of a query or key head before it is normalised, of the arguments of either direction.
#pragma once

#include "kernels/gpu/device.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// Channel c of head `head` before it is normalised.
template <class E, class Args>
MR_DEVICE float head_channel(const Args& a, int64_t t, int64_t head, int64_t c) {
  const E* const p = static_cast<const E*>(a.qkv) + (t * a.N + c);
  if (a.z == nullptr) return widen(load(p + head * a.d));
  const int64_t repeat = a.H / a.K, g = head < a.H ? head / repeat : head - a.H;
  const float key = widen(load(p + (a.H + g) * a.d));
  float mean;
  if (head < a.H) {
    mean = widen(load(p + head * a.d)) + key;
  } else {
    float queries = widen(load(p + g * repeat * a.d));
    for (int64_t h = 1; h < repeat; ++h) queries += widen(load(p + (g * repeat + h) * a.d));
    mean = fused(queries, 1.0f / static_cast<float>(repeat), key);
  }
  return fused(mean, 0.5f, widen(load(static_cast<const E*>(a.z) + ((head * a.T + t) * a.d + c))));
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
