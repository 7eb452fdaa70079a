// Embedding rows from a pack, element by element: a row is one column of a panel.
#include <algorithm>

#include "kernels/cpu/row_blocks.h"
#include "kernels/embedding.h"
#include "kernels/quantised.h"

namespace moraine::cpu {

void embedding_packed_forward(Context& ctx, const EmbeddingPackedForward& a) {
  const int64_t D = a.table.k;
  const int32_t* token = a.token.as<int32_t>();
  const auto task = [&](int64_t begin, int64_t end, int worker) {
    float* row = ctx.worker_scratch<float>(worker);
    for (int64_t t = begin; t < end; ++t) {
      if (a.x.dtype == DType::kF32) {
        read_packed_row(a.table, 0, token[t], a.x.as<float>() + t * D);
        continue;
      }
      read_packed_row(a.table, 0, token[t], row);
      std::transform(row, row + D, a.x.as<BF16>() + t * D, to_bf16);
    }
  };
  for_row_tasks(ctx, a.x.dims[0], rows_per_task(D), task);
}

}  // namespace moraine::cpu
