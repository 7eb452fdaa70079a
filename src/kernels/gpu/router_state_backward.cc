// RouterStateBackward, host side: passes that follow each other.
#include "kernels/gpu/router_state_backward.h"

#include "kernels/gpu/row_sums.h"
#include "kernels/gpu/runtime.h"
#include "kernels/gpu/tensor_floats.h"
#include "kernels/router_state.h"

namespace moraine::gpu {
void router_state_backward(Gpu& gpu, const RouterStateBackward& a) {
  const int64_t T = a.dy.dims[0], R = a.dy.dims[1], blocks = row_blocks(T);
  constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
  const GpuMemory along(gpu, T * kBytes), sums(gpu, blocks * 2 * R * kBytes);
  const RouterStateBackwardArgs args = {.dy = a.dy.data,
                                        .ds_prev = floats_of(a.ds_prev),
                                        .along = along.as<float>(),
                                        .sums = sums.as<float>(),
                                        .dx = a.dx.data,
                                        .ds = floats_of(a.ds),
                                        .s = a.s.as<float>(),
                                        .rstd = a.rstd.as<float>(),
                                        .s_prev = floats_of(a.s_prev),
                                        .gamma = floats_of(a.gamma),
                                        .norm = a.norm.as<float>(),
                                        .T = T,
                                        .R = R};
  const bool bf16 = a.dy.dtype == DType::kBF16;
  gpu.launch(bf16 ? "router_state_along_bf16" : "router_state_along_f32",
             {.blocks_x = T, .blocks_y = 1, .threads = kStateThreads}, &args);
  const int64_t columns = (R + kStateThreads - 1) / kStateThreads;
  gpu.launch(bf16 ? "router_state_rows_bf16" : "router_state_rows_f32",
             {.blocks_x = columns, .blocks_y = blocks, .threads = kStateThreads}, &args);
  const auto add = [&](const Tensor& to, int64_t place) {
    add_row_sums(gpu, {.y = to.as<float>(),
                       .sums = args.sums + place * R,
                       .blocks = blocks,
                       .stride = 2 * R,
                       .count = R});
  };
  add(a.dnorm, 0);
  if (!a.dgamma.empty()) add(a.dgamma, 1);
}

}  // namespace moraine::gpu
