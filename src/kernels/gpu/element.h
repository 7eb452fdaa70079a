// Element: which element a thread takes, where each takes one.
#pragma once

#include "kernels/gpu/device.h"
#include "kernels/gpu/element_threads.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// May be past the last one.
MR_DEVICE int64_t element() { return block_x() * kElementThreads + thread(); }

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
