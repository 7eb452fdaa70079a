// Argument checks and backend choice for Gelu. No arithmetic here.
#include "kernels/gelu.h"

#include "kernels/check_tensor.h"
#include "kernels/dispatch.h"
#include "kernels/gpu/gelu.h"

namespace moraine {
namespace {

void check_same(const Tensor& t, const char* name, const Tensor& x) {
  check_dtype(t, name, x.dtype);
  MR_CHECK(t.rank == x.rank, "%s has rank %d, x has %d", name, t.rank, x.rank);
  for (int i = 0; i < x.rank; ++i) {
    MR_CHECK(t.dims[i] == x.dims[i], "%s is %s, x is %s", name, shape_text(t).c_str(),
             shape_text(x).c_str());
  }
}

}  // namespace

void gelu_forward(Context& ctx, const GeluForward& a) {
  check_activation(a.x, "x");
  check_same(a.y, "y", a.x);
  if (a.x.count() == 0) return;
  const OpTimer timer(ctx.profile, "gelu_forward", 30.0 * static_cast<double>(a.x.count()),
                      2.0 * static_cast<double>(a.x.bytes()));
  dispatch(ctx, "gelu_forward", a, {ref::gelu_forward, cpu::gelu_forward, gpu::gelu_forward});
}

void gelu_backward(Context& ctx, const GeluBackward& a) {
  check_activation(a.x, "x");
  check_same(a.dx, "dx", a.x);
  check_same(a.dy, "dy", a.x);
  if (a.x.count() == 0) return;
  const OpTimer timer(ctx.profile, "gelu_backward", 34.0 * static_cast<double>(a.x.count()),
                      3.0 * static_cast<double>(a.x.bytes()));
  dispatch(ctx, "gelu_backward", a, {ref::gelu_backward, cpu::gelu_backward, gpu::gelu_backward});
}

}  // namespace moraine
