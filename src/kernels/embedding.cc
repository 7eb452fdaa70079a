// Argument checks and backend choice for Embedding. No arithmetic here.
#include "kernels/embedding.h"

#include "kernels/check_tensor.h"

namespace moraine {
namespace {

void check(const Tensor& x, const char* x_name, const Tensor& table, const char* table_name,
           const Tensor& token) {
  check_activation(x, x_name);
  MR_CHECK(x.rank == 2, "%s has rank %d", x_name, x.rank);
  MR_CHECK(table.rank == 2, "%s has rank %d", table_name, table.rank);
  const int64_t T = x.dims[0], V = table.dims[0];
  check_tensor(table, table_name, wide_dtype(x.dtype), {V, x.dims[1]});
  check_tensor(token, "token", DType::kI32, {T});
  for (int64_t t = 0; t < T; ++t) {
    const int32_t id = token.as<int32_t>()[t];
    MR_CHECK(id >= 0 && id < V, "token[%ld] = %d of %ld", long(t), id, long(V));
  }
}

}  // namespace

void embedding_forward(Context& ctx, const EmbeddingForward& a) {
  check(a.x, "x", a.table, "table", a.token);
  const int64_t T = a.x.dims[0];
  const OpTimer timer(ctx.profile, "embedding_forward", 0,
                      double(a.x.count() * dtype_bytes(a.table.dtype) + a.x.bytes()));
  if (T == 0) return;
  ctx.backend == Backend::kRef ? ref::embedding_forward(a) : cpu::embedding_forward(ctx, a);
}

void embedding_backward(Context& ctx, const EmbeddingBackward& a) {
  check(a.dx, "dx", a.dtable, "dtable", a.token);
  const int64_t T = a.dx.dims[0];
  const OpTimer timer(ctx.profile, "embedding_backward", double(a.dx.count()),
                      double(2 * a.dx.count() * dtype_bytes(a.dtable.dtype) + a.dx.bytes()));
  if (T == 0) return;
  ctx.backend == Backend::kRef ? ref::embedding_backward(a) : cpu::embedding_backward(ctx, a);
}

}  // namespace moraine
