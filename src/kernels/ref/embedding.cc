// Embedding by its formulas, in double.
#include "kernels/embedding.h"

#include <vector>

#include "kernels/quantised.h"
#include "kernels/ref/element.h"

namespace moraine::ref {

void embedding_forward(const EmbeddingForward& a) {
  const int64_t T = a.x.dims[0], D = a.x.dims[1];
  for (int64_t t = 0; t < T; ++t) {
    const int64_t v = a.token.as<int32_t>()[t];
    for (int64_t d = 0; d < D; ++d) set(a.x, t * D + d, get(a.table, v * D + d));
  }
}

void embedding_packed_forward(const EmbeddingPackedForward& a) {
  const PackedMatrix& w = a.table;
  if (w.format != WeightFormat::kPlain) {
    std::vector<float> row(static_cast<size_t>(w.k));
    for (int64_t t = 0; t < a.x.dims[0]; ++t) {
      read_packed_row(w, 0, a.token.as<int32_t>()[t], row.data());
      for (int64_t d = 0; d < w.k; ++d)
        set(a.x, t * w.k + d, static_cast<double>(row[static_cast<size_t>(d)]));
    }
    return;
  }
  embedding_forward({.x = a.x,
                     .table = make_tensor(a.table.data, a.table.dtype, {a.table.n, a.table.k}),
                     .token = a.token});
}

void embedding_backward(const EmbeddingBackward& a) {
  const int64_t T = a.dx.dims[0], D = a.dx.dims[1];
  for (int64_t t = 0; t < T; ++t) {
    const int64_t v = a.token.as<int32_t>()[t];
    for (int64_t d = 0; d < D; ++d) add(a.dtable, v * D + d, get(a.dx, t * D + d));
  }
}

}  // namespace moraine::ref
