// LinearWeight, host side.
#include "kernels/gpu/linear_weight.h"

#include "kernels/ceil_div.h"
#include "kernels/gpu/runtime.h"
#include "kernels/linear.h"

namespace moraine::gpu {
void grouped_linear_backward_weight(Gpu& gpu, const GroupedLinearBackwardWeight& a) {
  const int64_t groups = static_cast<int64_t>(a.rows.size()) - 1, n = a.dy.dims[1], k = a.x.dims[1];
  if (n == 0) return;
  grouped_linear_backward_weight(gpu, a, product_size(groups, groups * n, k));
}

void grouped_linear_backward_weight(Gpu& gpu, const GroupedLinearBackwardWeight& a,
                                    ProductSize size) {
  const int64_t groups = static_cast<int64_t>(a.rows.size()) - 1, n = a.dy.dims[1], k = a.x.dims[1];
  const bool there = gpu.holds(a.rows.data());
  if (!there && a.rows.back() == 0) return;
  const void* const rows =
      there ? a.rows.data() : gpu.list(a.rows.data(), static_cast<int64_t>(a.rows.size_bytes()));
  const LinearWeightArgs args = {.dw = a.dw.as<float>(),
                                 .dbias = static_cast<float*>(a.dbias.data),
                                 .dy = a.dy.data,
                                 .x = a.x.data,
                                 .rows = static_cast<const int64_t*>(rows),
                                 .n = n,
                                 .k = k};
  const bool tiles = a.dy.dtype == DType::kBF16, large = size == ProductSize::kLarge;
  const ProductShape& shape = large ? kLargeProduct : kProduct;
  const char* const of_tiles = large ? "linear_weight_bf16_large" : "linear_weight_bf16";
  const int outputs = tiles ? shape.rows : kLinearOutputs;
  const int inputs = tiles ? shape.columns : kLinearOutputs;
  gpu.launch(tiles ? of_tiles : "linear_weight_f32",
             {.blocks_x = k > 0 ? ceil_div(k, inputs) : 1,  // the bias has a gradient even so
              .blocks_y = groups * ceil_div(n, outputs),
              .threads = tiles ? shape.waves() * gpu.wave() : kLinearThreadsF32},
             &args);
}

void linear_backward_weight(Gpu& gpu, const LinearBackwardWeight& a) {
  const int64_t rows[2] = {0, a.dy.dims[0]}, n = a.dy.dims[1], k = a.x.dims[1];
  grouped_linear_backward_weight(gpu,
                                 {.dw = a.dw.reshaped({1, n, k}),
                                  .dbias = a.dbias.empty() ? Tensor() : a.dbias.reshaped({1, n}),
                                  .dy = a.dy,
                                  .x = a.x,
                                  .rows = rows});
}

}  // namespace moraine::gpu
