// Argument checks and backend choice for QkNormRope. No arithmetic here.
#include "kernels/qk_norm_rope.h"

#include "kernels/check_tensor.h"
#include "kernels/dispatch.h"
#include "kernels/gpu/qk_norm_rope.h"
#include "kernels/gpu/qk_norm_rope_backward.h"

namespace moraine {
namespace {

struct Form {
  DType activation;
  DType wide;
  int64_t T, H, K, d;
  bool plain;
};

// What both directions check: q [T, H, d] and k [T, K, d] (or their gradients) against the rest.
Form check_form(const Tensor& q, const Tensor& k, const Tensor& qkv, const Tensor& z,
                const Tensor& rope) {
  MR_CHECK(q.rank == 3 && k.rank == 3, "q has rank %d, k has rank %d", q.rank, k.rank);
  MR_CHECK(qkv.rank == 2, "qkv has rank %d", qkv.rank);
  check_activation(q, "q");
  const Form f = {q.dtype,   wide_dtype(q.dtype), q.dims[0], q.dims[1],
                  k.dims[1], q.dims[2],           z.empty()};
  check_tensor(k, "k", f.activation, {f.T, f.K, f.d});
  check_tensor(qkv, "qkv", f.activation, {f.T, qkv.dims[1]});
  check_tensor(z, "z", f.activation, {f.H + f.K, f.T, f.d}, true);
  MR_CHECK(f.K > 0 && f.H % f.K == 0, "H=%ld K=%ld", long(f.H), long(f.K));
  MR_CHECK(qkv.dims[1] >= (f.H + f.K) * f.d, "qkv has %ld columns, q and k take %ld",
           long(qkv.dims[1]), long((f.H + f.K) * f.d));
  MR_CHECK(rope.rank == 3 && rope.dims[2] == 2, "rope is %s", shape_text(rope).c_str());
  MR_CHECK(rope.dtype == DType::kF32 || rope.dtype == f.wide, "rope is %s", dtype_name(rope.dtype));
  MR_CHECK(2 * rope.dims[1] <= f.d, "rope turns %ld of %ld channels", long(2 * rope.dims[1]),
           long(f.d));
  return f;
}

void check_positions(const Context& ctx, const Tensor& position, int64_t T, int64_t P) {
  check_tensor(position, "position", DType::kI32, {T});
  if (ctx.backend == Backend::kGpu) return;
  for (int64_t t = 0; t < T; ++t) {
    const int32_t p = position.as<int32_t>()[t];
    MR_CHECK(p >= 0 && p < P, "position[%ld]=%d, table has %ld", long(t), p, long(P));
  }
}

double count_of(const Form& f) { return static_cast<double>(f.T * (f.H + f.K) * f.d); }

}  // namespace

void rope_table(Context& ctx, const RopeTable& a) {
  MR_CHECK(a.table.rank == 3 && a.table.dims[2] == 2, "table is %s", shape_text(a.table).c_str());
  MR_CHECK(a.table.dtype == DType::kF32 || a.table.dtype == DType::kF64, "table is %s",
           dtype_name(a.table.dtype));
  MR_CHECK(a.theta > 0, "theta=%g", a.theta);
  if (a.table.count() == 0) return;
  const OpTimer timer(ctx.profile, "rope_table", 0, static_cast<double>(a.table.bytes()));
  dispatch(ctx, "rope_table", a, {ref::rope_table, cpu::rope_table, gpu::rope_table});
}

void qk_norm_rope_forward(Context& ctx, const QkNormRopeForward& a) {
  const Form f = check_form(a.q, a.k, a.qkv, a.z, a.rope);
  check_tensor(a.nq, "nq", f.wide, {f.T, f.H}, f.plain);
  check_tensor(a.nk, "nk", f.wide, {f.T, f.K}, f.plain);
  check_tensor(a.temp, "temp", f.wide, {f.K}, f.plain);
  check_positions(ctx, a.position, f.T, a.rope.dims[0]);
  if (f.T == 0) return;
  const OpTimer timer(ctx.profile, "qk_norm_rope_forward", (f.plain ? 3.0 : 9.0) * count_of(f),
                      (f.plain ? 2.0 : 3.0) * static_cast<double>(a.q.bytes() + a.k.bytes()));
  dispatch(ctx, "qk_norm_rope_forward", a,
           {ref::qk_norm_rope_forward, cpu::qk_norm_rope_forward, gpu::qk_norm_rope_forward});
}

void qk_norm_rope_backward(Context& ctx, const QkNormRopeBackward& a) {
  const Form f = check_form(a.dq, a.dk, a.qkv, a.z, a.rope);
  check_tensor(a.dqkv, "dqkv", f.activation, {f.T, a.qkv.dims[1]});
  check_tensor(a.dz, "dz", f.activation, {f.H + f.K, f.T, f.d}, f.plain);
  check_tensor(a.dtemp, "dtemp", f.wide, {f.K}, f.plain);
  check_tensor(a.nq, "nq", f.wide, {f.T, f.H}, f.plain);
  check_tensor(a.nk, "nk", f.wide, {f.T, f.K}, f.plain);
  check_tensor(a.temp, "temp", f.wide, {f.K}, f.plain);
  check_positions(ctx, a.position, f.T, a.rope.dims[0]);
  if (f.T == 0) return;
  const OpTimer timer(ctx.profile, "qk_norm_rope_backward", (f.plain ? 3.0 : 16.0) * count_of(f),
                      (f.plain ? 2.0 : 5.0) * static_cast<double>(a.dq.bytes() + a.dk.bytes()));
  dispatch(ctx, "qk_norm_rope_backward", a,
           {ref::qk_norm_rope_backward, cpu::qk_norm_rope_backward, gpu::qk_norm_rope_backward});
}

}  // namespace moraine
