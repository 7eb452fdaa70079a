// Which compilation of the kernels a wave is of.
#include "kernels/gpu/emulated_kernels.h"

namespace moraine::gpu {

std::span<const EmulatedEntry> emulated_kernels(int wave) {
  return wave == 32 ? emulated_kernels_wave32() : emulated_kernels_wave64();
}

}  // namespace moraine::gpu
