// Two parts of attention become one, row by row; memory-bound, so plain loops.
#include <algorithm>
#include <cmath>

#include "kernels/attention_part.h"
#include "kernels/cpu/row_blocks.h"

namespace moraine::cpu {
namespace {

void merge_row(float* o, const float* o_part, float& lse, float lse_part, int64_t d) {
  const float most = std::max(lse, lse_part);
  if (std::isinf(lse_part)) return;                              // it saw no key
  const float apart = std::exp(std::min(lse, lse_part) - most);  // the smaller sum, the larger is 1
  const float larger = 1.0f / (1.0f + apart), smaller = apart * larger;
  const float keep = lse > lse_part ? larger : smaller, take = lse > lse_part ? smaller : larger;
  lse = most + std::log1p(apart);
  for (int64_t c = 0; c < d; ++c) o[c] = keep * o[c] + take * o_part[c];
}

}  // namespace

void attention_merge(Context& ctx, const AttentionMerge& a) {
  MR_CHECK(a.o.dtype == DType::kF32);
  const int64_t H = a.o.dims[1], d = a.o.dims[2], rows = rows_per_task(H * d);
  float *o = a.o.as<float>(), *lse = a.lse.as<float>();
  const float *o_part = a.o_part.as<float>(), *lse_part = a.lse_part.as<float>();
  const Segment &first = a.segments.front(), &last = a.segments.back();
  const int64_t begin_row = first.row_begin, count = last.row_begin + last.rows - begin_row;
  for_row_tasks(ctx, count, rows, [&](int64_t begin, int64_t end, int) {
    for (const Segment& s : a.segments) {
      const int64_t from = std::max(begin_row + begin, s.row_begin),
                    to = std::min(begin_row + end, s.row_begin + s.rows);
      for (int64_t i = from * H; i < to * H; ++i) {
        merge_row(o + i * d, o_part + i * d, lse[i], lse_part[i], d);
      }
    }
  });
}

}  // namespace moraine::cpu
