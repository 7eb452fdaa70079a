// The tests' kernels as compiled for waves of 32.
#define MR_GPU_WAVE 32
#include "kernels/gpu/test_emulations.h"
#include "kernels/gpu/test_faults.h"

namespace moraine::gpu {

std::span<const EmulatedEntry> test_kernels_wave32() { return kFaultKernels; }

}  // namespace moraine::gpu
