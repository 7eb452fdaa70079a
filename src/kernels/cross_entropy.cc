// Argument checks and backend choice for CrossEntropy. No arithmetic here.
#include "kernels/cross_entropy.h"

#include "kernels/check_tensor.h"
#include "kernels/dispatch.h"
#include "kernels/gpu/cross_entropy.h"

namespace moraine {

void cross_entropy(Context& ctx, const CrossEntropy& a) {
  MR_CHECK(a.logits.rank == 2, "logits has rank %d", a.logits.rank);
  const int64_t T = a.logits.dims[0], V = a.logits.dims[1];
  const DType wide = wide_dtype(a.logits.dtype);
  check_tensor(a.logits, "logits", wide, {T, V});
  check_tensor(a.loss, "loss", wide, {T});
  check_tensor(a.target, "target", DType::kI32, {T});
  check_tensor(a.lse, "lse", DType::kF64, {T}, /*optional=*/true);
  if (!a.dlogits.empty()) {
    check_activation(a.dlogits, "dlogits");
    check_shape(a.dlogits, "dlogits", {T, V});
    MR_CHECK(wide_dtype(a.dlogits.dtype) == wide, "dlogits is %s", dtype_name(a.dlogits.dtype));
  }
  for (int64_t t = 0; ctx.backend != Backend::kGpu && t < T; ++t) {
    const int32_t id = a.target.as<int32_t>()[t];
    MR_CHECK(id < V, "target[%ld] = %d of %ld", long(t), id, long(V));
  }
  const bool both = !a.dlogits.empty();
  const OpTimer timer(ctx.profile, "cross_entropy", (both ? 5.0 : 3.0) * double(T * V),
                      double((both ? 2 : 1) * a.logits.bytes() + (both ? a.dlogits.bytes() : 0)));
  if (T == 0) return;
  dispatch(ctx, "cross_entropy", a, {ref::cross_entropy, cpu::cross_entropy, gpu::cross_entropy});
}

}  // namespace moraine
