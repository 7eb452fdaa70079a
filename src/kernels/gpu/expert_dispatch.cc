// ExpertDispatch, host side.
#include "kernels/expert_dispatch.h"

#include "kernels/gpu/element_grid.h"
#include "kernels/gpu/expert_dispatch.h"
#include "kernels/gpu/runtime.h"

namespace moraine::gpu {

void dispatch_plan(Gpu& gpu, const DispatchPlan& a) {
  const DispatchPlanArgs args = {.rows = a.rows.as<int64_t>(),
                                 .choice_of = a.choice_of.as<int32_t>(),
                                 .row_of = a.row_of.as<int32_t>(),
                                 .load = a.load.as<int64_t>(),
                                 .expert = a.expert.as<int32_t>(),
                                 .choices = a.expert.count(),
                                 .E = a.rows.dims[0] - 1};
  const Grid grid = {.blocks_x = args.E + 1, .blocks_y = 1, .threads = kPlanThreads};
  gpu.launch("dispatch_load", grid, &args);
  gpu.launch("dispatch_place", grid, &args);
}

void dispatch_forward(Gpu& gpu, const DispatchForward& a) {
  const int64_t choices = a.xe.dims[0];
  const DispatchArgs args = {.xe = a.xe.data,
                             .x = a.x.data,
                             .choice_of = a.choice_of.as<int32_t>(),
                             .choices = choices,
                             .n = choices / a.x.dims[0],
                             .D = a.x.dims[1]};
  gpu.launch(a.x.dtype == DType::kBF16 ? "dispatch_bf16" : "dispatch_f32",
             element_grid(choices * args.D), &args);
}

void dispatch_backward(Gpu& gpu, const DispatchBackward& a) {
  const DispatchBackwardArgs args = {.dx = a.dx.as<float>(),
                                     .dxe = a.dxe.data,
                                     .row_of = a.row_of.as<int32_t>(),
                                     .T = a.dx.dims[0],
                                     .n = a.row_of.dims[1],
                                     .D = a.dx.dims[1]};
  gpu.launch(a.dxe.dtype == DType::kBF16 ? "dispatch_backward_bf16" : "dispatch_backward_f32",
             element_grid(args.T * args.D), &args);
}

void combine_forward(Gpu& gpu, const CombineForward& a) {
  const CombineArgs args = {.h = a.h.data,
                            .ye = a.ye.data,
                            .gate = a.gate.as<float>(),
                            .x = a.skip_identity ? a.x.data : nullptr,
                            .row_of = a.row_of.as<int32_t>(),
                            .T = a.h.dims[0],
                            .n = a.row_of.dims[1],
                            .D = a.h.dims[1]};
  gpu.launch(a.h.dtype == DType::kBF16 ? "combine_bf16" : "combine_f32",
             element_grid(args.T * args.D), &args);
}

void combine_backward(Gpu& gpu, const CombineBackward& a) {
  const CombineBackwardArgs args = {.dye = a.dye.data,
                                    .dgate = a.dgate.as<float>(),
                                    .dx = a.skip_identity ? a.dx.as<float>() : nullptr,
                                    .dh = a.dh.data,
                                    .ye = a.ye.data,
                                    .gate = a.gate.as<float>(),
                                    .x = a.skip_identity ? a.x.data : nullptr,
                                    .row_of = a.row_of.as<int32_t>(),
                                    .n = a.row_of.dims[1],
                                    .D = a.dh.dims[1]};
  gpu.launch(a.dh.dtype == DType::kBF16 ? "combine_backward_bf16" : "combine_backward_f32",
             {.blocks_x = a.dh.dims[0], .blocks_y = 1, .threads = kCombineThreads}, &args);
}

}  // namespace moraine::gpu
