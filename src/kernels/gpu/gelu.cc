// Gelu, host side: a thread for each element.
#include "kernels/gelu.h"

#include "kernels/gpu/element_grid.h"
#include "kernels/gpu/gelu.h"
#include "kernels/gpu/runtime.h"

namespace moraine::gpu {

void gelu_forward(Gpu& gpu, const GeluForward& a) {
  const GeluArgs args = {.y = a.y.data, .x = a.x.data, .count = a.x.count()};
  gpu.launch(a.x.dtype == DType::kBF16 ? "gelu_bf16" : "gelu_f32", element_grid(args.count), &args);
}

void gelu_backward(Gpu& gpu, const GeluBackward& a) {
  const GeluBackwardArgs args = {
      .dx = a.dx.data, .dy = a.dy.data, .x = a.x.data, .count = a.x.count()};
  gpu.launch(a.x.dtype == DType::kBF16 ? "gelu_backward_bf16" : "gelu_backward_f32",
             element_grid(args.count), &args);
}

}  // namespace moraine::gpu
