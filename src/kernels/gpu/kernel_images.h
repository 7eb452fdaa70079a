// KernelImages: the compiled kernels that are in this program, one image for each target.
//
// NVIDIA's is PTX, which the driver compiles for its device; AMD's is a linked code object. Only a build with
// MORAINE_GPU_KERNELS=ON has any (cmake/gpu_kernels.cmake): it needs clang 19 and lld 19, and no GPU.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace moraine::gpu {

struct KernelImage {
  const char* target;  // "sm_90", "gfx942"
  bool amd;
  const void* data;  // PTX ends with a 0
  size_t bytes;
};

// Of one vendor the newest target first. Empty: there are none in this program.
std::span<const KernelImage> kernel_images();

// "sm_90, sm_80, gfx942, gfx90a", or what to build.
std::string kernel_images_text();

}  // namespace moraine::gpu
