// The tests' kernels as compiled for waves of 64.
#define MR_GPU_WAVE 64
#include "kernels/gpu/test_emulations.h"
#include "kernels/gpu/test_faults.h"
#include "kernels/gpu/test_tiles.h"

namespace moraine::gpu {

std::vector<EmulatedEntry> test_kernels_wave64() {
  std::vector<EmulatedEntry> all(std::begin(kFaultKernels), std::end(kFaultKernels));
  all.insert(all.end(), std::begin(kTileKernels), std::end(kTileKernels));
  return all;
}

}  // namespace moraine::gpu
