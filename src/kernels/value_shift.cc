// Argument checks and backend choice for ValueShift. No arithmetic here.
#include "kernels/value_shift.h"

#include "kernels/check_tensor.h"
#include "kernels/dispatch.h"
#include "kernels/gpu/value_shift.h"
#include "kernels/halo_rows.h"
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

void check_halo(const Tensor& halo, const char* name, const Tensor& v,
                std::span<const int64_t> halo_row, Segments segments) {
  if (halo.empty()) return;
  check_tensor(halo, name, v.dtype, {halo.dims[0], v.dims[1] * v.dims[2] / 2});
  check_halo_rows(halo_row, segments, halo.dims[0]);
}

}  // namespace

void value_shift_forward(Context& ctx, const ValueShiftForward& a) {
  check_values(a.v, a.qkv, a.segments, a.delayed);
  check_halo(a.halo, "halo", a.v, a.halo_row, a.segments);
  if (a.v.dims[0] == 0) return;
  const OpTimer timer(ctx.profile, "value_shift_forward", 0,
                      2.0 * static_cast<double>(a.v.bytes()));
  dispatch(ctx, "value_shift_forward", a,
           {ref::value_shift_forward, cpu::value_shift_forward, gpu::value_shift_forward});
}

void value_shift_backward(Context& ctx, const ValueShiftBackward& a) {
  check_values(a.dv, a.dqkv, a.segments, a.delayed);
  check_halo(a.dhalo, "dhalo", a.dv, a.halo_row, a.segments);
  if (a.dv.dims[0] == 0) return;
  const OpTimer timer(ctx.profile, "value_shift_backward", 0,
                      2.0 * static_cast<double>(a.dv.bytes()));
  dispatch(ctx, "value_shift_backward", a,
           {ref::value_shift_backward, cpu::value_shift_backward, gpu::value_shift_backward});
}

}  // namespace moraine
