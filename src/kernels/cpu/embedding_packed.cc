// Embedding rows from a pack: a row is one column of a panel, 128 bytes from word to word.
#include <cstring>

#include "kernels/cpu/row_blocks.h"
#include "kernels/embedding.h"

namespace moraine::cpu {
namespace {

constexpr int64_t kPanel = 32;  // columns of a panel (kernels/cpu/linear_engine.h)

// A word is one f32, or two bf16 that follow each other in the row; the last may be half used.
void gather_row(const EmbeddingPackedForward& a, int64_t t) {
  const int64_t D = a.table.k, id = a.token.as<int32_t>()[t];
  const int64_t width = dtype_bytes(a.table.dtype), per_word = 4 / width;
  const int64_t words = (D + per_word - 1) / per_word, whole = D / per_word;
  const uint32_t* from =
      static_cast<const uint32_t*>(a.table.data) + id / kPanel * words * kPanel + id % kPanel;
  uint8_t* to = static_cast<uint8_t*>(a.x.data) + t * D * width;
  for (int64_t i = 0; i < whole; ++i) std::memcpy(to + 4 * i, from + i * kPanel, 4);
  if (whole < words) std::memcpy(to + 4 * whole, from + whole * kPanel, static_cast<size_t>(width));
}

}  // namespace

void embedding_packed_forward(Context& ctx, const EmbeddingPackedForward& a) {
  for_row_tasks(ctx, a.x.dims[0], rows_per_task(a.x.dims[1]), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) gather_row(a, t);
  });
}

}  // namespace moraine::cpu
