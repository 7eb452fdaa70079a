// Argument checks and backend choice for Embedding. No arithmetic here.
#include "kernels/embedding.h"

#include "kernels/check_tensor.h"
#include "kernels/dispatch.h"
#include "kernels/gpu/embedding.h"

namespace moraine {
namespace {

void check_tokens(const Context& ctx, const Tensor& token, int64_t T, int64_t V) {
  check_tensor(token, "token", DType::kI32, {T});
  if (ctx.backend == Backend::kGpu) return;
  for (int64_t t = 0; t < T; ++t) {
    const int32_t id = token.as<int32_t>()[t];
    MR_CHECK(id >= 0 && id < V, "token[%ld] = %d of %ld", long(t), id, long(V));
  }
}

struct NamedTensor {
  const Tensor& tensor;
  const char* name;
};

void check(const Context& ctx, const NamedTensor& rows, const NamedTensor& words,
           const Tensor& token) {
  const auto& [x, x_name] = rows;
  const auto& [table, table_name] = words;
  check_activation(x, x_name);
  MR_CHECK(x.rank == 2, "%s has rank %d", x_name, x.rank);
  MR_CHECK(table.rank == 2, "%s has rank %d", table_name, table.rank);
  check_tensor(table, table_name, wide_dtype(x.dtype), {table.dims[0], x.dims[1]});
  check_tokens(ctx, token, x.dims[0], table.dims[0]);
}

}  // namespace

void embedding_forward(Context& ctx, const EmbeddingForward& a) {
  check(ctx, {a.x, "x"}, {a.table, "table"}, a.token);
  const int64_t T = a.x.dims[0];
  const OpTimer timer(ctx.profile, "embedding_forward", 0,
                      double(a.x.count() * dtype_bytes(a.table.dtype) + a.x.bytes()));
  if (T == 0) return;
  dispatch(ctx, "embedding_forward", a,
           {ref::embedding_forward, cpu::embedding_forward, gpu::embedding_forward});
}

void embedding_packed_forward(Context& ctx, const EmbeddingPackedForward& a) {
  check_activation(a.x, "x");
  MR_CHECK(a.x.rank == 2, "x has rank %d", a.x.rank);
  const PackedMatrix& w = a.table;
  MR_CHECK(w.dtype == a.x.dtype, "pack is for %s, x is %s", dtype_name(w.dtype),
           dtype_name(a.x.dtype));
  MR_CHECK(w.groups == 1 && w.k == a.x.dims[1], "pack is %ld x %ld x %ld", long(w.groups),
           long(w.n), long(w.k));
  check_tokens(ctx, a.token, a.x.dims[0], w.n);
  const OpTimer timer(ctx.profile, "embedding_packed_forward", 0, double(2 * a.x.bytes()));
  if (a.x.dims[0] == 0) return;
  dispatch(ctx, "embedding_packed_forward", a,
           {ref::embedding_packed_forward, cpu::embedding_packed_forward,
            gpu::embedding_packed_forward});
}

void embedding_backward(Context& ctx, const EmbeddingBackward& a) {
  check(ctx, {a.dx, "dx"}, {a.dtable, "dtable"}, a.token);
  const int64_t T = a.dx.dims[0];
  const OpTimer timer(ctx.profile, "embedding_backward", double(a.dx.count()),
                      double(2 * a.dx.count() * dtype_bytes(a.dtable.dtype) + a.dx.bytes()));
  if (T == 0) return;
  dispatch(ctx, "embedding_backward", a,
           {ref::embedding_backward, cpu::embedding_backward, gpu::embedding_backward});
}

}  // namespace moraine
