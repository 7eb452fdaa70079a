// ResidualNormBackward, host side: three passes that follow each other.
#include "kernels/gpu/residual_norm_backward.h"

#include "kernels/gpu/runtime.h"
#include "kernels/gpu/tensor_floats.h"
#include "kernels/residual_norm.h"

namespace moraine::gpu {
namespace {

ResidualNormBackwardArgs device_args(const ResidualNormBackward& a) {
  return {.dh = a.dh.data,
          .dr = floats_of(a.dr),
          .dh_scale = floats_of(a.dscale.h_scale),
          .dh_bias = floats_of(a.dscale.h_bias),
          .dr_scale = floats_of(a.dscale.r_scale),
          .dr_bias = floats_of(a.dscale.r_bias),
          .dnorm = floats_of(a.dnorm),
          .along = nullptr,
          .sums = nullptr,
          .dx = floats_of(a.dx),
          .dr_out = floats_of(a.dr_out),
          .r_out = floats_of(a.r_out),
          .rstd = floats_of(a.rstd),
          .h = a.h.data,
          .r = floats_of(a.r),
          .h_scale = floats_of(a.scale.h_scale),
          .h_bias = floats_of(a.scale.h_bias),
          .r_scale = floats_of(a.scale.r_scale),
          .r_bias = floats_of(a.scale.r_bias),
          .norm = floats_of(a.norm),
          .T = a.h.dims[0],
          .D = a.h.dims[1]};
}

}  // namespace

void residual_norm_backward(Gpu& gpu, const ResidualNormBackward& a) {
  ResidualNormBackwardArgs args = device_args(a);
  if (args.T == 0) return;
  const int64_t blocks = (args.T + kNormSumRows - 1) / kNormSumRows,
                columns = (args.D + kNormThreads - 1) / kNormThreads;
  constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
  const GpuMemory along(gpu, args.T * kBytes), sums(gpu, blocks * kNormSums * args.D * kBytes);
  args.along = along.as<float>();
  args.sums = sums.as<float>();
  gpu.launch("residual_norm_along", {.blocks_x = args.T, .blocks_y = 1, .threads = kNormThreads},
             &args);
  gpu.launch(a.h.dtype == DType::kBF16 ? "residual_norm_rows_bf16" : "residual_norm_rows_f32",
             {.blocks_x = columns, .blocks_y = blocks, .threads = kNormThreads}, &args);
  gpu.launch("residual_norm_sums", {.blocks_x = columns, .blocks_y = 1, .threads = kNormThreads},
             &args);
}

}  // namespace moraine::gpu
