// Argument checks and backend choice for RouterChoice. No arithmetic here.
#include "kernels/router_choice.h"

#include "kernels/check_tensor.h"
#include "kernels/dispatch.h"
#include "kernels/gpu/router_choice.h"

namespace moraine {
namespace {

void check_choices(const Tensor& prob, const Tensor& expert, int32_t skip) {
  MR_CHECK(prob.rank == 2, "prob has rank %d", prob.rank);
  MR_CHECK(expert.rank == 2, "expert has rank %d", expert.rank);
  const int64_t T = prob.dims[0], C = prob.dims[1], n = expert.dims[1];
  check_tensor(expert, "expert", DType::kI32, {T, n});
  MR_CHECK(n >= 1 && n <= C, "%ld choices of %ld classes", long(n), long(C));
  MR_CHECK(skip == -1 || skip == C - 1, "skip=%d of %ld classes", skip, long(C));
}

}  // namespace

void router_choice_forward(Context& ctx, const RouterChoiceForward& a) {
  MR_CHECK(a.logits.rank == 2, "logits has rank %d", a.logits.rank);
  const int64_t T = a.logits.dims[0], C = a.logits.dims[1];
  const DType wide = wide_dtype(a.logits.dtype);
  check_tensor(a.logits, "logits", wide, {T, C});
  check_tensor(a.prob, "prob", wide, {T, C});
  check_choices(a.prob, a.expert, a.skip);
  check_tensor(a.gate, "gate", wide, {T, a.expert.dims[1]});
  // The balance bias stays f32 beside f64 activations.
  check_tensor(a.bias, "bias", a.bias.dtype == DType::kF64 ? wide : DType::kF32, {C});
  const OpTimer timer(
      ctx.profile, "router_choice_forward", 6.0 * double(T * C),
      double(a.logits.bytes() + a.prob.bytes() + a.expert.bytes() + a.gate.bytes()));
  if (T == 0) return;
  dispatch(ctx, "router_choice_forward", a,
           {ref::router_choice_forward, cpu::router_choice_forward, gpu::router_choice_forward});
}

void router_choice_backward(Context& ctx, const RouterChoiceBackward& a) {
  check_choices(a.prob, a.expert, a.skip);
  const int64_t T = a.prob.dims[0], C = a.prob.dims[1], n = a.expert.dims[1];
  check_activation(a.dlogits, "dlogits");
  const DType wide = wide_dtype(a.dlogits.dtype);
  check_shape(a.dlogits, "dlogits", {T, C});
  check_tensor(a.prob, "prob", wide, {T, C});
  check_tensor(a.dgate, "dgate", wide, {T, n});
  const OpTimer timer(
      ctx.profile, "router_choice_backward", 2.0 * double(T * C),
      double(a.dlogits.bytes() + a.prob.bytes() + a.expert.bytes() + a.dgate.bytes()));
  if (T == 0) return;
  dispatch(ctx, "router_choice_backward", a,
           {ref::router_choice_backward, cpu::router_choice_backward, gpu::router_choice_backward});
}

}  // namespace moraine
