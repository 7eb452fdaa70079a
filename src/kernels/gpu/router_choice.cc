// RouterChoice, host side.
#include "kernels/router_choice.h"

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

}  // namespace moraine::gpu
