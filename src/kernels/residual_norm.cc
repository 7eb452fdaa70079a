// Argument checks and backend choice for ResidualNorm. No arithmetic here.
#include "kernels/residual_norm.h"

#include "kernels/check_tensor.h"
#include "kernels/dispatch.h"
#include "kernels/gpu/residual_norm.h"
#include "kernels/gpu/residual_norm_backward.h"

namespace moraine {
namespace {

// Bytes that both directions move: every tensor once.
template <class... Tensors>
double bytes_of(const Tensors&... tensors) {
  return (0.0 + ... + (tensors.empty() ? 0.0 : static_cast<double>(tensors.bytes())));
}

// All four vectors, or those of h alone where there is no r, or none.
void check_scale(const ResidualScale& s, DType wide, int64_t D, bool scaled, bool has_r) {
  check_tensor(s.h_scale, "h_scale", wide, {D}, !scaled);
  check_tensor(s.h_bias, "h_bias", wide, {D}, !scaled);
  check_tensor(s.r_scale, "r_scale", wide, {D}, !(scaled && has_r));
  check_tensor(s.r_bias, "r_bias", wide, {D}, !(scaled && has_r));
  MR_CHECK(scaled || s.h_bias.empty(), "h_bias without h_scale");
  MR_CHECK((scaled && has_r) || (s.r_scale.empty() && s.r_bias.empty()),
           "r_scale or r_bias without h_scale or r");
}

}  // namespace

void residual_norm_forward(Context& ctx, const ResidualNormForward& a) {
  MR_CHECK(a.h.rank == 2, "h has rank %d", a.h.rank);
  MR_CHECK(a.eps > 0, "eps=%g", static_cast<double>(a.eps));
  check_activation(a.h, "h");
  const int64_t T = a.h.dims[0], D = a.h.dims[1];
  const DType wide = wide_dtype(a.h.dtype);
  check_tensor(a.r_out, "r_out", wide, {T, D});
  check_tensor(a.x, "x", a.h.dtype, {T, D});
  check_tensor(a.rstd, "rstd", wide, {T});
  check_tensor(a.r, "r", wide, {T, D}, true);
  check_scale(a.scale, wide, D, !a.scale.h_scale.empty(), !a.r.empty());
  check_tensor(a.norm, "norm", wide, {D});
  if (T == 0) return;
  const OpTimer timer(ctx.profile, "residual_norm_forward", 8.0 * static_cast<double>(T * D),
                      bytes_of(a.r_out, a.x, a.rstd, a.h, a.r));
  dispatch(ctx, "residual_norm_forward", a,
           {ref::residual_norm_forward, cpu::residual_norm_forward, gpu::residual_norm_forward});
}

void residual_norm_backward(Context& ctx, const ResidualNormBackward& a) {
  MR_CHECK(a.h.rank == 2, "h has rank %d", a.h.rank);
  check_activation(a.h, "h");
  const int64_t T = a.h.dims[0], D = a.h.dims[1];
  const DType wide = wide_dtype(a.h.dtype);
  const bool scaled = !a.scale.h_scale.empty(), has_r = !a.r.empty();
  check_tensor(a.dh, "dh", a.h.dtype, {T, D});
  check_tensor(a.dr, "dr", wide, {T, D}, !has_r);
  MR_CHECK(has_r || a.dr.empty(), "dr without r");
  check_scale(a.dscale, wide, D, scaled, has_r);
  check_tensor(a.dnorm, "dnorm", wide, {D});
  check_tensor(a.dx, "dx", wide, {T, D});
  check_tensor(a.dr_out, "dr_out", wide, {T, D}, true);
  check_tensor(a.r_out, "r_out", wide, {T, D});
  check_tensor(a.rstd, "rstd", wide, {T});
  check_tensor(a.r, "r", wide, {T, D}, true);
  check_scale(a.scale, wide, D, scaled, has_r);
  check_tensor(a.norm, "norm", wide, {D});
  if (T == 0) return;
  const OpTimer timer(ctx.profile, "residual_norm_backward", 20.0 * static_cast<double>(T * D),
                      bytes_of(a.dh, a.dr, a.dx, a.dr_out, a.r_out, a.rstd, a.h, a.r));
  dispatch(ctx, "residual_norm_backward", a,
           {ref::residual_norm_backward, cpu::residual_norm_backward, gpu::residual_norm_backward});
}

}  // namespace moraine
