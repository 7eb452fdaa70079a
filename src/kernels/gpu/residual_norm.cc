// ResidualNorm, host side.
#include "kernels/gpu/residual_norm.h"

#include "kernels/gpu/runtime.h"
#include "kernels/gpu/tensor_floats.h"
#include "kernels/residual_norm.h"

namespace moraine::gpu {
void residual_norm_forward(Gpu& gpu, const ResidualNormForward& a) {
  const int64_t T = a.h.dims[0], D = a.h.dims[1];
  if (T == 0) return;
  const ResidualNormArgs args = {.r_out = a.r_out.as<float>(),
                                 .x = a.x.data,
                                 .rstd = a.rstd.as<float>(),
                                 .h = a.h.data,
                                 .r = floats_of(a.r),
                                 .h_scale = floats_of(a.scale.h_scale),
                                 .h_bias = floats_of(a.scale.h_bias),
                                 .r_scale = floats_of(a.scale.r_scale),
                                 .r_bias = floats_of(a.scale.r_bias),
                                 .norm = a.norm.as<float>(),
                                 .eps = a.eps,
                                 .D = D};
  gpu.launch(a.h.dtype == DType::kBF16 ? "residual_norm_bf16" : "residual_norm_f32",
             {.blocks_x = T, .blocks_y = 1, .threads = kNormThreads}, &args);
}

}  // namespace moraine::gpu
