// ChannelOr: a vector over channels that may be absent.
#pragma once

#include "kernels/gpu/device.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

MR_DEVICE float channel_or(const float* v, int64_t d, float absent) {
  return v == nullptr ? absent : load(v + d);
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
