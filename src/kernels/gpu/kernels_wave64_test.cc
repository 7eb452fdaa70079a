// The tests' kernels as compiled for waves of 64.
#define MR_GPU_WAVE 64
#include "kernels/gpu/test_emulations.h"
#include "kernels/gpu/test_faults.h"

namespace moraine::gpu {

std::span<const EmulatedEntry> test_kernels_wave64() { return kFaultKernels; }

}  // namespace moraine::gpu
