// Argument checks and backend choice for CcaConv. No arithmetic here.
#include "kernels/cca_conv.h"

#include "kernels/check_tensor.h"
#include "kernels/dispatch.h"
#include "kernels/gpu/cca_conv.h"
#include "kernels/gpu/cca_conv_backward.h"
#include "kernels/halo_rows.h"
#include "kernels/segment_rows.h"

namespace moraine {
namespace {

// pair is [G, T, 2*d], qkv [T, N] with p in its first C = G*d columns.
void check_pair(const Tensor& pair, const Tensor& qkv, Segments segments) {
  MR_CHECK(pair.rank == 3, "pair has rank %d", pair.rank);
  MR_CHECK(qkv.rank == 2, "qkv has rank %d", qkv.rank);
  check_activation(qkv, "qkv");
  const int64_t G = pair.dims[0], T = qkv.dims[0], N = qkv.dims[1];
  MR_CHECK(pair.dims[2] % 2 == 0, "pair has %ld columns", long(pair.dims[2]));
  check_tensor(pair, "pair", qkv.dtype, {G, T, pair.dims[2]});
  MR_CHECK(N >= G * pair.dims[2] / 2, "qkv has %ld columns, q and k take %ld", long(N),
           long(G * pair.dims[2] / 2));
  check_segments(segments, T);
}

// `a` says which rows of `halo` its segments have.
template <class A>
void check_halo(const A& a, const Tensor& halo, const char* name, DType dtype, int64_t C) {
  if (halo.empty()) return;
  check_tensor(halo, name, dtype, {halo.dims[0], 2, C});
  check_halo_rows(a.halo_row, a.segments, halo.dims[0]);
}

}  // namespace

void cca_conv_forward(Context& ctx, const CcaConvForward& a) {
  check_pair(a.pair, a.qkv, a.segments);
  const int64_t C = a.pair.dims[0] * a.pair.dims[2] / 2, T = a.qkv.dims[0];
  const DType wide = wide_dtype(a.qkv.dtype);
  check_halo(a, a.halo, "halo", a.qkv.dtype, C);
  check_tensor(a.w, "w", wide, {C, 2});
  check_tensor(a.b, "b", wide, {C});
  if (T == 0) return;
  const OpTimer timer(ctx.profile, "cca_conv_forward", 4.0 * static_cast<double>(T * C),
                      1.5 * static_cast<double>(a.pair.bytes()));
  dispatch(ctx, "cca_conv_forward", a,
           {ref::cca_conv_forward, cpu::cca_conv_forward, gpu::cca_conv_forward});
}

void cca_conv_backward(Context& ctx, const CcaConvBackward& a) {
  check_pair(a.dpair, a.qkv, a.segments);
  const int64_t C = a.dpair.dims[0] * a.dpair.dims[2] / 2, T = a.qkv.dims[0];
  const DType wide = wide_dtype(a.qkv.dtype);
  check_tensor(a.dqkv, "dqkv", a.qkv.dtype, {T, a.qkv.dims[1]});
  check_tensor(a.dw, "dw", wide, {C, 2});
  check_tensor(a.db, "db", wide, {C});
  check_tensor(a.w, "w", wide, {C, 2});
  check_halo(a, a.halo, "halo", a.qkv.dtype, C);
  check_halo(a, a.dhalo, "dhalo", wide, C);
  for (const Segment& s : a.segments) {
    MR_CHECK(s.position_begin == 0 || !a.halo.empty(),
             "segment at row %ld begins at position %ld, without a halo", long(s.row_begin),
             long(s.position_begin));
  }
  if (T == 0) return;
  const OpTimer timer(ctx.profile, "cca_conv_backward", 10.0 * static_cast<double>(T * C),
                      2.5 * static_cast<double>(a.dpair.bytes()));
  dispatch(ctx, "cca_conv_backward", a,
           {ref::cca_conv_backward, cpu::cca_conv_backward, gpu::cca_conv_backward});
}

}  // namespace moraine
