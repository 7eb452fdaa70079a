// Swiglu, host side.
#include "kernels/swiglu.h"

#include "kernels/gpu/element_grid.h"
#include "kernels/gpu/runtime.h"
#include "kernels/gpu/swiglu.h"

namespace moraine::gpu {

namespace {

// Null: the host knows them.
const int64_t* last_there(const Gpu& gpu, const RowCount& rows) {
  return gpu.holds(rows.there()) ? rows.there() : nullptr;
}

}  // namespace

void swiglu_forward(Gpu& gpu, const SwigluForward& a) {
  const int64_t* const last = last_there(gpu, a.rows);
  const int64_t F = a.y.dims[1], rows = last == nullptr ? int64_t{a.rows} : a.y.dims[0],
                count = rows * F;
  if (count == 0) return;
  const SwigluArgs args = {
      .y = a.y.data, .gate_up = a.gate_up.data, .last = last, .rows = rows, .F = F};
  gpu.launch(a.y.dtype == DType::kBF16 ? "swiglu_bf16" : "swiglu_f32", element_grid(count), &args);
}

void swiglu_backward(Gpu& gpu, const SwigluBackward& a) {
  const int64_t* const last = last_there(gpu, a.rows);
  const int64_t F = a.dy.dims[1], rows = last == nullptr ? int64_t{a.rows} : a.dy.dims[0],
                count = rows * F;
  if (count == 0) return;
  const SwigluBackwardArgs args = {.dgate_up = a.dgate_up.data,
                                   .dy = a.dy.data,
                                   .gate_up = a.gate_up.data,
                                   .last = last,
                                   .rows = rows,
                                   .F = F};
  gpu.launch(a.dy.dtype == DType::kBF16 ? "swiglu_backward_bf16" : "swiglu_backward_f32",
             element_grid(count), &args);
}

}  // namespace moraine::gpu
