// ValueShift, host side.
#include "kernels/value_shift.h"

#include "kernels/gpu/element_grid.h"
#include "kernels/gpu/row_places.h"
#include "kernels/gpu/value_shift.h"

namespace moraine::gpu {

void value_shift_forward(Gpu& gpu, const ValueShiftForward& a) {
  const int64_t T = a.v.dims[0], width = a.v.dims[1] * a.v.dims[2];
  const ValueShiftArgs args = {
      .v = a.v.data,
      .qkv = a.qkv.data,
      .halo = a.halo.data,
      .place = row_places(gpu, {T, a.segments, !a.halo.empty(), a.halo_row}),
      .T = T,
      .N = a.qkv.dims[1],
      .width = width,
      .plain = a.delayed ? width / 2 : width};
  gpu.launch(a.v.dtype == DType::kBF16 ? "value_shift_bf16" : "value_shift_f32",
             element_grid(T * width), &args);
}

void value_shift_backward(Gpu& gpu, const ValueShiftBackward& a) {
  const int64_t T = a.dv.dims[0], width = a.dv.dims[1] * a.dv.dims[2];
  const ValueShiftBackwardArgs args = {
      .dqkv = a.dqkv.data,
      .dhalo = a.dhalo.data,
      .dv = a.dv.data,
      .place = row_places(gpu, {T, a.segments, !a.dhalo.empty(), a.halo_row}),
      .T = T,
      .N = a.dqkv.dims[1],
      .width = width,
      .plain = a.delayed ? width / 2 : width};
  gpu.launch(a.dv.dtype == DType::kBF16 ? "value_shift_backward_bf16" : "value_shift_backward_f32",
             element_grid(T * width), &args);
}

}  // namespace moraine::gpu
