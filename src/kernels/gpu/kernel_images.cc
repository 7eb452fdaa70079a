// KernelImages: their names.
#include "kernels/gpu/kernel_images.h"

namespace moraine::gpu {

std::string kernel_images_text() {
  std::string text;
  for (const KernelImage& image : kernel_images())
    text += (text.empty() ? "" : ", ") + std::string(image.target);
  return text.empty() ? "none in this program: cmake -DMORAINE_GPU_KERNELS=ON (docs/gpu.md)" : text;
}

}  // namespace moraine::gpu
