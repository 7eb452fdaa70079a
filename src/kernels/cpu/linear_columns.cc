// Column sums for bias gradients: a task owns a strip of columns of one group.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_columns.cc"
#include "hwy/foreach_target.h"

#include <algorithm>

#include "kernels/cpu/linear_columns.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace moraine::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using namespace moraine::HWY_NAMESPACE;

constexpr int64_t kStrip =
    128;  // columns of a task: chains enough to hide the latency of an addition

template <class E>
HWY_INLINE void sum_strip(float* out, const E* from, int64_t stride, int64_t rows,
                          int64_t columns) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df)), whole = columns / lanes * lanes;
  constexpr int64_t kMost = kStrip + 64;
  HWY_ALIGN float sums[kMost] = {};
  for (int64_t t = 0; t < rows; ++t, from += stride) {
    int64_t j = 0;
    for (; j < whole; j += lanes) {
      hn::Store(hn::Add(hn::Load(df, sums + j), load(df, from + j)), df, sums + j);
    }
    if (j < columns) {
      hn::Store(hn::Add(hn::Load(df, sums + j), load_n(df, from + j, columns - j)), df, sums + j);
    }
  }
  for (int64_t j = 0; j < columns; ++j) out[j] += sums[j];
}

void column_sums(float* out, const Tensor& dy, int64_t row0, int64_t row1, int64_t strip) {
  const int64_t n = dy.dims[1], j0 = strip * kStrip, columns = std::min(kStrip, n - j0);
  const int64_t at = row0 * n + j0;
  if (dy.dtype == DType::kBF16) {
    sum_strip(out + j0, dy.as<BF16>() + at, n, row1 - row0, columns);
  } else {
    sum_strip(out + j0, dy.as<float>() + at, n, row1 - row0, columns);
  }
}

int64_t strips(int64_t n) { return (n + kStrip - 1) / kStrip; }

}  // namespace HWY_NAMESPACE
}  // namespace moraine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine::cpu {
HWY_EXPORT(column_sums);
HWY_EXPORT(strips);

void add_column_sums(Context& ctx, float* dbias, const Tensor& dy, std::span<const int64_t> rows) {
  const int64_t n = dy.dims[1], per_group = HWY_DYNAMIC_DISPATCH(strips)(n);
  const auto sum = HWY_DYNAMIC_DISPATCH(column_sums);
  const int64_t groups = static_cast<int64_t>(rows.size()) - 1;
  ctx.pool->parallel_for(groups * per_group, [&](int64_t task, int) {
    const int64_t g = task / per_group;
    if (rows[g] < rows[g + 1]) sum(dbias + g * n, dy, rows[g], rows[g + 1], task % per_group);
  });
}
}  // namespace moraine::cpu
#endif  // HWY_ONCE
