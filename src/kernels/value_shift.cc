// Argument checks and backend choice for ValueShift. No arithmetic here.
#include "kernels/value_shift.h"

#include "kernels/check_tensor.h"
#include "kernels/segment_rows.h"

namespace moraine {
namespace {

// v is [T, K, d], qkv [T, N] with the values in its last K*d columns.
void check_values(const Tensor& v, const Tensor& qkv, Segments segments, bool delayed) {
  MR_CHECK(v.rank == 3, "v has rank %d", v.rank);
  MR_CHECK(qkv.rank == 2, "qkv has rank %d", qkv.rank);
  check_activation(v, "v");
  const int64_t width = v.dims[1] * v.dims[2], N = qkv.dims[1];
  check_tensor(qkv, "qkv", v.dtype, {v.dims[0], N});
  MR_CHECK(N >= width, "qkv has %ld columns, values take %ld", long(N), long(width));
  MR_CHECK(!delayed || width % 2 == 0, "%ld value channels do not halve", long(width));
  check_segments(segments, v.dims[0]);
}

}  // namespace

void value_shift_forward(Context& ctx, const ValueShiftForward& a) {
  check_values(a.v, a.qkv, a.segments, a.delayed);
  const int64_t S = static_cast<int64_t>(a.segments.size()), M = a.v.dims[1] * a.v.dims[2] / 2;
  check_tensor(a.halo, "halo", a.v.dtype, {S, M}, true);
  if (a.v.dims[0] == 0) return;
  const OpTimer timer(ctx.profile, "value_shift_forward", 0,
                      2.0 * static_cast<double>(a.v.bytes()));
  ctx.backend == Backend::kRef ? ref::value_shift_forward(a) : cpu::value_shift_forward(ctx, a);
}

void value_shift_backward(Context& ctx, const ValueShiftBackward& a) {
  check_values(a.dv, a.dqkv, a.segments, a.delayed);
  if (a.dv.dims[0] == 0) return;
  const OpTimer timer(ctx.profile, "value_shift_backward", 0,
                      2.0 * static_cast<double>(a.dv.bytes()));
  ctx.backend == Backend::kRef ? ref::value_shift_backward(a) : cpu::value_shift_backward(ctx, a);
}

}  // namespace moraine
