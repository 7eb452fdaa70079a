// Embedding: a backward task owns a part of the vocabulary in a block of columns.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cc"
#include "hwy/foreach_target.h"

#include <algorithm>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/embedding.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {
namespace {

template <class E>
void gather_rows(const EmbeddingForward& a, int64_t begin, int64_t end) {
  const DF df;
  const int64_t D = a.x.dims[1];
  for (int64_t t = begin; t < end; ++t) {
    const float* from = a.table.as<float>() + a.token.as<int32_t>()[t] * D;
    E* x = a.x.as<E>() + t * D;
    for_lanes(
        D, [&](int64_t d, auto part) MR_LANES { put(get(df, from + d, part), df, x + d, part); });
  }
}

// Adds columns [begin, end) of the tokens whose id is `part_index` modulo `parts`, a power of two.
template <class E>
void scatter_part(const EmbeddingBackward& a, int32_t part_index, int32_t parts, int64_t begin,
                  int64_t end) {
  const DF df;
  const int64_t T = a.dx.dims[0], D = a.dx.dims[1];
  const int32_t* token = a.token.as<int32_t>();
  for (int64_t t = 0; t < T; ++t) {
    if ((token[t] & (parts - 1)) != part_index) continue;
    float* to = a.dtable.as<float>() + token[t] * D + begin;
    const E* dx = a.dx.as<E>() + t * D + begin;
    for_lanes(end - begin, [&](int64_t d, auto part) MR_LANES {
      put(hn::Add(get(df, to + d, part), get(df, dx + d, part)), df, to + d, part);
    });
  }
}

void embedding_forward_rows(const EmbeddingForward& a, int64_t begin, int64_t end) {
  a.x.dtype == DType::kBF16 ? gather_rows<BF16>(a, begin, end) : gather_rows<float>(a, begin, end);
}

void embedding_backward_part(const EmbeddingBackward& a, int32_t part, int32_t parts, int64_t begin,
                             int64_t end) {
  a.dx.dtype == DType::kBF16 ? scatter_part<BF16>(a, part, parts, begin, end)
                             : scatter_part<float>(a, part, parts, begin, end);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine::cpu {

HWY_EXPORT(embedding_forward_rows);
HWY_EXPORT(embedding_backward_part);

namespace {
constexpr int32_t kParts = 8;      // of the vocabulary: each reads all token ids once
constexpr int64_t kColumns = 512;  // of a task: a frequent token still spreads over the threads
}  // namespace

void embedding_forward(Context& ctx, const EmbeddingForward& a) {
  for_row_tasks(ctx, a.x.dims[0], rows_per_task(a.x.dims[1]), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(embedding_forward_rows)(a, begin, end);
  });
}

void embedding_backward(Context& ctx, const EmbeddingBackward& a) {
  const int64_t D = a.dx.dims[1], blocks = (D + kColumns - 1) / kColumns;
  ctx.pool->parallel_for(kParts * blocks, [&](int64_t task, int) {
    const int64_t begin = task / kParts * kColumns;
    HWY_DYNAMIC_DISPATCH(embedding_backward_part)
    (a, static_cast<int32_t>(task % kParts), kParts, begin, std::min(D, begin + kColumns));
  });
}

}  // namespace moraine::cpu
#endif  // HWY_ONCE
