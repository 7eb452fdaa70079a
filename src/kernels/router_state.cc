// Argument checks and backend choice for RouterState. No arithmetic here.
#include "kernels/router_state.h"

#include "kernels/check_tensor.h"
#include "kernels/dispatch.h"
#include "kernels/gpu/router_state.h"
#include "kernels/gpu/router_state_backward.h"

namespace moraine {

void router_state_forward(Context& ctx, const RouterStateForward& a) {
  MR_CHECK(a.x.rank == 2, "x has rank %d", a.x.rank);
  MR_CHECK(a.eps > 0, "eps=%g", static_cast<double>(a.eps));
  check_activation(a.x, "x");
  const int64_t T = a.x.dims[0], R = a.x.dims[1];
  const DType wide = wide_dtype(a.x.dtype);
  const bool first = a.s_prev.empty();
  check_tensor(a.s, "s", wide, {T, R});
  check_tensor(a.rstd, "rstd", wide, {T});
  check_tensor(a.y, "y", wide, {T, R});
  check_tensor(a.s_prev, "s_prev", wide, {T, R}, first);
  check_tensor(a.gamma, "gamma", wide, {R}, first);
  check_tensor(a.norm, "norm", wide, {R});
  MR_CHECK(!first || a.gamma.empty(), "gamma without s_prev");
  if (T == 0) return;
  const OpTimer timer(ctx.profile, "router_state_forward", 6.0 * static_cast<double>(T * R),
                      static_cast<double>((first ? 2 : 3) * a.s.bytes() + a.x.bytes()));
  dispatch(ctx, "router_state_forward", a,
           {ref::router_state_forward, cpu::router_state_forward, gpu::router_state_forward});
}

void router_state_backward(Context& ctx, const RouterStateBackward& a) {
  MR_CHECK(a.dy.rank == 2, "dy has rank %d", a.dy.rank);
  check_activation(a.dy, "dy");
  const int64_t T = a.dy.dims[0], R = a.dy.dims[1];
  const DType wide = wide_dtype(a.dy.dtype);
  const bool first = a.s_prev.empty();
  check_tensor(a.ds_prev, "ds_prev", wide, {T, R}, first);
  check_tensor(a.dgamma, "dgamma", wide, {R}, first);
  check_tensor(a.dnorm, "dnorm", wide, {R});
  check_tensor(a.dx, "dx", a.dy.dtype, {T, R});
  check_tensor(a.ds, "ds", wide, {T, R}, true);
  check_tensor(a.s, "s", wide, {T, R});
  check_tensor(a.rstd, "rstd", wide, {T});
  check_tensor(a.s_prev, "s_prev", wide, {T, R}, first);
  check_tensor(a.gamma, "gamma", wide, {R}, first);
  check_tensor(a.norm, "norm", wide, {R});
  MR_CHECK(!first || (a.gamma.empty() && a.dgamma.empty() && a.ds_prev.empty()),
           "gamma, dgamma or ds_prev without s_prev");
  if (T == 0) return;
  const OpTimer timer(ctx.profile, "router_state_backward", 16.0 * static_cast<double>(T * R),
                      static_cast<double>((first ? 2 : 4) * a.s.bytes() + 2 * a.dy.bytes()));
  dispatch(ctx, "router_state_backward", a,
           {ref::router_state_backward, cpu::router_state_backward, gpu::router_state_backward});
}

}  // namespace moraine
