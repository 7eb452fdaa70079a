// The kernels as compiled for waves of 64.
#define MR_GPU_WAVE 64
#include "kernels/gpu/emulated_kernels.h"
#include "kernels/gpu/kernel_list.h"

namespace moraine::gpu {

std::span<const EmulatedEntry> emulated_kernels_wave64() { return kKernelList; }

}  // namespace moraine::gpu
