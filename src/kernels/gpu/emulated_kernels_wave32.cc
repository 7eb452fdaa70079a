// The kernels as compiled for waves of 32.
#define MR_GPU_WAVE 32
#include "kernels/gpu/emulated_kernels.h"
#include "kernels/gpu/kernel_list.h"

namespace moraine::gpu {

std::span<const EmulatedEntry> emulated_kernels_wave32() { return kKernelList; }

}  // namespace moraine::gpu
