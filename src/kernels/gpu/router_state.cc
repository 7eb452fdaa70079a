// RouterState, host side.
#include "kernels/router_state.h"

#include "kernels/gpu/router_state.h"
#include "kernels/gpu/runtime.h"

namespace moraine::gpu {

void router_state_forward(Gpu& gpu, const RouterStateForward& a) {
  const RouterStateArgs args = {.s = a.s.as<float>(),
                                .x = a.x.data,
                                .rstd = a.rstd.as<float>(),
                                .y = a.y.as<float>(),
                                .s_prev = static_cast<const float*>(a.s_prev.data),
                                .gamma = static_cast<const float*>(a.gamma.data),
                                .norm = a.norm.as<float>(),
                                .eps = a.eps,
                                .R = a.x.dims[1]};
  gpu.launch(a.x.dtype == DType::kBF16 ? "router_state_bf16" : "router_state_f32",
             {.blocks_x = a.x.dims[0], .blocks_y = 1, .threads = kStateThreads}, &args);
}

}  // namespace moraine::gpu
