// Elementwise, host side.
#include "kernels/gpu/elementwise.h"

#include "kernels/gpu/element_grid.h"
#include "kernels/gpu/runtime.h"
#include "tensor/tensor.h"

namespace moraine::gpu {
namespace {

bool is_bf16(const Tensor& t) { return t.dtype == DType::kBF16; }

}  // namespace

void zero(Gpu& gpu, const Tensor& y) {
  const ZeroArgs args = {
      .y = y.data, .count = y.count(), .element_bytes = static_cast<int>(dtype_bytes(y.dtype))};
  if (args.count > 0) gpu.launch("zero_elements", element_grid(args.count), &args);
}

void add_into(Gpu& gpu, const Tensor& y, const Tensor& x) {
  const AddIntoArgs args = {.y = y.as<float>(), .x = x.data, .count = y.count()};
  gpu.launch(is_bf16(x) ? "add_into_bf16" : "add_into_f32", element_grid(args.count), &args);
}

void scale(Gpu& gpu, const Tensor& y, float factor) {
  const ScaleArgs args = {.y = y.data, .count = y.count(), .factor = factor};
  gpu.launch(is_bf16(y) ? "scale_bf16" : "scale_f32", element_grid(args.count), &args);
}

void round_copy(Gpu& gpu, const Tensor& y, const Tensor& x, DType precision) {
  const RoundCopyArgs args = {.y = y.data,
                              .x = x.data,
                              .count = y.count(),
                              .y_bf16 = is_bf16(y),
                              .x_bf16 = is_bf16(x),
                              .round = precision == DType::kBF16};
  gpu.launch("round_copy_elements", element_grid(args.count), &args);
}

}  // namespace moraine::gpu
