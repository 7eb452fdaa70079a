// Swiglu, host side.
#include "kernels/swiglu.h"

#include "kernels/gpu/runtime.h"
#include "kernels/gpu/swiglu.h"

namespace moraine::gpu {

void swiglu_forward(Gpu& gpu, const SwigluForward& a) {
  const int64_t* const last = a.rows.there();
  const int64_t F = a.y.dims[1], rows = last == nullptr ? int64_t{a.rows} : a.y.dims[0],
                count = rows * F;
  if (count == 0) return;
  const SwigluArgs args = {
      .y = a.y.data, .gate_up = a.gate_up.data, .last = last, .rows = rows, .F = F};
  gpu.launch(a.y.dtype == DType::kBF16 ? "swiglu_bf16" : "swiglu_f32",
             {.blocks_x = (count + kSwigluThreads - 1) / kSwigluThreads,
              .blocks_y = 1,
              .threads = kSwigluThreads},
             &args);
}

}  // namespace moraine::gpu
