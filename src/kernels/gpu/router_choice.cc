// RouterChoice, host side.
#include "kernels/router_choice.h"

#include "kernels/gpu/element_grid.h"
#include "kernels/gpu/router_choice.h"
#include "kernels/gpu/runtime.h"

namespace moraine::gpu {

void router_choice_forward(Gpu& gpu, const RouterChoiceForward& a) {
  const RouterChoiceArgs args = {.prob = a.prob.as<float>(),
                                 .expert = a.expert.as<int32_t>(),
                                 .gate = a.gate.as<float>(),
                                 .logits = a.logits.as<float>(),
                                 .bias = a.bias.as<float>(),
                                 .C = a.logits.dims[1],
                                 .n = a.expert.dims[1],
                                 .skip = a.skip};
  gpu.launch("router_choice_f32",
             {.blocks_x = a.logits.dims[0], .blocks_y = 1, .threads = kChoiceThreads}, &args);
}

void router_choice_backward(Gpu& gpu, const RouterChoiceBackward& a) {
  const RouterChoiceBackwardArgs args = {.dlogits = a.dlogits.data,
                                         .dgate = a.dgate.as<float>(),
                                         .prob = a.prob.as<float>(),
                                         .expert = a.expert.as<int32_t>(),
                                         .T = a.prob.dims[0],
                                         .C = a.prob.dims[1],
                                         .n = a.expert.dims[1],
                                         .skip = a.skip};
  gpu.launch(a.dlogits.dtype == DType::kBF16 ? "router_choice_backward_bf16"
                                             : "router_choice_backward_f32",
             element_grid(args.T * args.C), &args);
}

}  // namespace moraine::gpu
