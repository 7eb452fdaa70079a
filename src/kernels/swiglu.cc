// Argument checks and backend choice for Swiglu. No arithmetic here.
#include "kernels/swiglu.h"

#include "kernels/check_tensor.h"
#include "kernels/dispatch.h"
#include "kernels/gpu/runtime.h"
#include "kernels/gpu/swiglu.h"

namespace moraine {
namespace {

double size_of(const Tensor& wide, int64_t rows) { return double(rows) * double(wide.dims[1]); }

// Of rows that a GPU's memory holds, and the host does not know: as of all.
int64_t rows_of(const Context& ctx, const RowCount& rows, int64_t T) {
  const bool known = ctx.backend != Backend::kGpu || !ctx.gpu->holds(rows.there());
  return known ? int64_t{rows} : T;
}

void check(const Tensor& narrow, const char* narrow_name, const Tensor& wide, const char* wide_name,
           int64_t rows) {
  check_activation(narrow, narrow_name);
  MR_CHECK(narrow.rank == 2, "%s has rank %d", narrow_name, narrow.rank);
  check_tensor(wide, wide_name, narrow.dtype, {narrow.dims[0], 2 * narrow.dims[1]});
  MR_CHECK(rows >= 0 && rows <= narrow.dims[0], "rows=%ld of %ld", long(rows),
           long(narrow.dims[0]));
}

}  // namespace

void swiglu_forward(Context& ctx, const SwigluForward& a) {
  const int64_t rows = rows_of(ctx, a.rows, a.y.dims[0]);
  check(a.y, "y", a.gate_up, "gate_up", rows);
  const double wide = size_of(a.gate_up, rows);
  const OpTimer timer(ctx.profile, "swiglu_forward", 2.5 * wide,
                      1.5 * wide * double(dtype_bytes(a.y.dtype)));
  if (rows == 0) return;
  dispatch(ctx, "swiglu_forward", a,
           {ref::swiglu_forward, cpu::swiglu_forward, gpu::swiglu_forward});
}

void swiglu_backward(Context& ctx, const SwigluBackward& a) {
  const int64_t rows = rows_of(ctx, a.rows, a.dy.dims[0]);
  check(a.dy, "dy", a.gate_up, "gate_up", rows);
  check(a.dy, "dy", a.dgate_up, "dgate_up", rows);
  const double wide = size_of(a.gate_up, rows);
  const OpTimer timer(ctx.profile, "swiglu_backward", 5 * wide,
                      2.5 * wide * double(dtype_bytes(a.dy.dtype)));
  if (rows == 0) return;
  dispatch(ctx, "swiglu_backward", a,
           {ref::swiglu_backward, cpu::swiglu_backward, gpu::swiglu_backward});
}

}  // namespace moraine
