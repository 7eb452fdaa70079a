// Embedding rows from a pack: a row is one column of a panel, 128 bytes from word to word.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/row_blocks.h"
#include "kernels/embedding.h"
#include "kernels/quantised.h"

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

// Integers times their scales, rounded.
void scale_row(const EmbeddingPackedForward& a, int64_t t) {
  std::vector<float> row(static_cast<size_t>(a.table.k));
  read_packed_row(a.table, 0, a.token.as<int32_t>()[t], row.data());
  if (a.x.dtype == DType::kF32) {
    std::copy(row.begin(), row.end(), a.x.as<float>() + t * a.table.k);
  } else {
    std::transform(row.begin(), row.end(), a.x.as<BF16>() + t * a.table.k, to_bf16);
  }
}

}  // namespace

void embedding_packed_forward(Context& ctx, const EmbeddingPackedForward& a) {
  for_row_tasks(ctx, a.x.dims[0], rows_per_task(a.x.dims[1]), [&](int64_t begin, int64_t end, int) {
    const bool plain = a.table.format == WeightFormat::kPlain;
    for (int64_t t = begin; t < end; ++t) plain ? gather_row(a, t) : scale_row(a, t);
  });
}

}  // namespace moraine::cpu
