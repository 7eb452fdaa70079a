// EmulatedKernels: every kernel of this folder as compiled for the CPU, by name.
#pragma once

#include <span>

#include "kernels/gpu/emulate.h"

namespace moraine::gpu {

std::span<const EmulatedEntry> emulated_kernels(int wave);  // 32 or 64
std::span<const EmulatedEntry> emulated_kernels_wave32();
std::span<const EmulatedEntry> emulated_kernels_wave64();

}  // namespace moraine::gpu
