// Argument checks and backend choice for ExpertDispatch. No arithmetic here.
#include "kernels/expert_dispatch.h"

#include "kernels/check_tensor.h"
#include "kernels/dispatch.h"
#include "kernels/gpu/expert_dispatch.h"

namespace moraine {
namespace {

// Tokens, choices and channels of a pair of [T, D] and [T*n, D].
struct Extents {
  int64_t T, n, D;
};

Extents check_rows(const Tensor& token, const char* token_name, const Tensor& row,
                   const char* row_name, const Tensor& row_of) {
  MR_CHECK(token.rank == 2, "%s has rank %d", token_name, token.rank);
  MR_CHECK(row_of.rank == 2, "row_of has rank %d", row_of.rank);
  const int64_t T = token.dims[0], D = token.dims[1], n = row_of.dims[1];
  check_activation(row, row_name);
  check_tensor(row_of, "row_of", DType::kI32, {T, n});
  check_shape(row, row_name, {T * n, D});
  return {T, n, D};
}

}  // namespace

void dispatch_plan(Context& ctx, const DispatchPlan& a) {
  MR_CHECK(a.expert.rank == 2, "expert has rank %d", a.expert.rank);
  MR_CHECK(a.rows.rank == 1 && a.rows.dims[0] >= 2, "rows is %s", shape_text(a.rows).c_str());
  const int64_t T = a.expert.dims[0], n = a.expert.dims[1], classes = a.rows.dims[0];
  MR_CHECK(T * n <= INT32_MAX, "%ld choices", long(T * n));
  check_tensor(a.expert, "expert", DType::kI32, {T, n});
  check_tensor(a.rows, "rows", DType::kI64, {classes});
  check_tensor(a.load, "load", DType::kI64, {classes});
  check_tensor(a.choice_of, "choice_of", DType::kI32, {T * n});
  check_tensor(a.row_of, "row_of", DType::kI32, {T, n});
  const OpTimer timer(ctx.profile, "dispatch_plan", 0, 4.0 * double(3 * T * n));
  if (ctx.backend == Backend::kGpu) return gpu::dispatch_plan(*ctx.gpu, a);
  ref::dispatch_plan(a);  // one thread on both others: 12 bytes per choice
}

void dispatch_forward(Context& ctx, const DispatchForward& a) {
  MR_CHECK(a.x.rank == 2, "x has rank %d", a.x.rank);
  MR_CHECK(a.xe.rank == 2, "xe has rank %d", a.xe.rank);
  const int64_t T = a.x.dims[0], D = a.x.dims[1], Te = a.xe.dims[0];
  check_activation(a.x, "x");
  check_tensor(a.xe, "xe", a.x.dtype, {Te, D});
  check_tensor(a.choice_of, "choice_of", DType::kI32, {Te});
  check_dtype(a.rows, "rows", DType::kI64);
  MR_CHECK(T == 0 ? Te == 0 : Te % T == 0, "%ld expert rows of %ld tokens", long(Te), long(T));
  const int64_t used = ctx.backend == Backend::kGpu ? Te : a.rows.as<int64_t>()[a.rows.count() - 1];
  MR_CHECK(used >= 0 && used <= Te, "%ld rows of %ld", long(used), long(Te));
  const OpTimer timer(ctx.profile, "dispatch_forward", 0,
                      2.0 * double(used * D) * double(dtype_bytes(a.x.dtype)));
  if (used == 0) return;
  dispatch(ctx, "dispatch_forward", a,
           {ref::dispatch_forward, cpu::dispatch_forward, gpu::dispatch_forward});
}

void dispatch_backward(Context& ctx, const DispatchBackward& a) {
  const auto [T, n, D] = check_rows(a.dx, "dx", a.dxe, "dxe", a.row_of);
  check_dtype(a.dx, "dx", wide_dtype(a.dxe.dtype));
  const OpTimer timer(ctx.profile, "dispatch_backward", double(T * n * D),
                      2.0 * double(a.dx.bytes()) + double(a.dxe.bytes()));
  if (T == 0) return;
  dispatch(ctx, "dispatch_backward", a,
           {ref::dispatch_backward, cpu::dispatch_backward, gpu::dispatch_backward});
}

void combine_forward(Context& ctx, const CombineForward& a) {
  const auto [T, n, D] = check_rows(a.h, "h", a.ye, "ye", a.row_of);
  check_dtype(a.h, "h", a.ye.dtype);
  check_tensor(a.x, "x", a.ye.dtype, {T, D}, !a.skip_identity);
  check_tensor(a.gate, "gate", wide_dtype(a.ye.dtype), {T, n});
  const OpTimer timer(ctx.profile, "combine_forward", 2.0 * double(T * n * D),
                      double(a.h.bytes() + a.ye.bytes()));
  if (T == 0) return;
  dispatch(ctx, "combine_forward", a,
           {ref::combine_forward, cpu::combine_forward, gpu::combine_forward});
}

void combine_backward(Context& ctx, const CombineBackward& a) {
  const auto [T, n, D] = check_rows(a.dh, "dh", a.ye, "ye", a.row_of);
  const DType type = a.ye.dtype, wide = wide_dtype(type);
  check_dtype(a.dh, "dh", type);
  check_tensor(a.dye, "dye", type, {T * n, D});
  check_tensor(a.dgate, "dgate", wide, {T, n});
  check_tensor(a.gate, "gate", wide, {T, n});
  check_tensor(a.dx, "dx", wide, {T, D}, !a.skip_identity);
  check_tensor(a.x, "x", type, {T, D}, !a.skip_identity);
  const OpTimer timer(ctx.profile, "combine_backward", 3.0 * double(T * n * D),
                      double(a.dh.bytes() + a.ye.bytes() + a.dye.bytes()));
  if (T == 0) return;
  dispatch(ctx, "combine_backward", a,
           {ref::combine_backward, cpu::combine_backward, gpu::combine_backward});
}

}  // namespace moraine
