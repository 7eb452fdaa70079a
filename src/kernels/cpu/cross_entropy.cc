// CrossEntropy: one row per task; the maximum and the sum of each chunk are taken while it is in
// L1.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy.cc"
#include "hwy/foreach_target.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/exp.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cross_entropy.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kChunk = 4096;  // 16 KiB of logits: read twice, once from memory

HWY_INLINE float max_of(const float* x, int64_t n) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const VF lowest = hn::Set(df, std::numeric_limits<float>::lowest());  // a row of -inf has no NaN
  VF m0 = lowest, m1 = lowest;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    m0 = hn::Max(m0, load(df, x + i));
    m1 = hn::Max(m1, load(df, x + i + lanes));
  }
  float top = hn::GetLane(hn::MaxOfLanes(df, hn::Max(m0, m1)));
  for (; i < n; ++i) top = std::max(top, x[i]);
  return top;
}

// sum of exp(x - top), four sums in turn.
HWY_INLINE float sum_of_exp(const float* x, int64_t n, float top) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const VF shift = hn::Set(df, top);
  VF s0 = hn::Zero(df), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::Add(s0, exp_nonpositive(df, hn::Sub(load(df, x + i), shift)));
    s1 = hn::Add(s1, exp_nonpositive(df, hn::Sub(load(df, x + i + lanes), shift)));
    s2 = hn::Add(s2, exp_nonpositive(df, hn::Sub(load(df, x + i + 2 * lanes), shift)));
    s3 = hn::Add(s3, exp_nonpositive(df, hn::Sub(load(df, x + i + 3 * lanes), shift)));
  }
  for (; i + lanes <= n; i += lanes) {
    s0 = hn::Add(s0, exp_nonpositive(df, hn::Sub(load(df, x + i), shift)));
  }
  if (i < n) {
    const size_t rest = static_cast<size_t>(n - i);
    const VF e = exp_nonpositive(df, hn::Sub(load_n(df, x + i, rest), shift));
    s1 = hn::Add(s1, hn::IfThenElseZero(hn::FirstN(df, rest), e));
  }
  return sum_lanes(df, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

struct Normalizer {
  float top;   // the largest logit
  double sum;  // of exp(logit - top)
};

Normalizer normalizer(const float* x, int64_t V) {
  Normalizer total{std::numeric_limits<float>::lowest(), 0};
  for (int64_t begin = 0; begin < V; begin += kChunk) {
    const int64_t n = std::min(kChunk, V - begin);
    const float top = max_of(x + begin, n);
    const double sum = static_cast<double>(sum_of_exp(x + begin, n, top));
    if (top > total.top) {
      total.sum = total.sum * std::exp(static_cast<double>(total.top) - top) + sum;
      total.top = top;
    } else {
      total.sum += sum * std::exp(static_cast<double>(top) - total.top);
    }
  }
  return total;
}

double log_sum(const Normalizer& z) { return z.top + std::log(z.sum); }

template <class E>
void gradient_row(E* dlogits, const float* x, int64_t V, const Normalizer& z, int32_t target) {
  const DF df;
  const VF shift = hn::Set(df, z.top), scale = hn::Set(df, static_cast<float>(1 / z.sum));
  for_lanes(V, [&](int64_t v, auto part) MR_LANES {
    put(hn::Mul(exp_nonpositive(df, hn::Sub(get(df, x + v, part), shift)), scale), df, dlogits + v,
        part);
  });
  const float p = static_cast<float>(std::exp(static_cast<double>(x[target]) - z.top) / z.sum - 1);
  if constexpr (sizeof(E) == sizeof(float)) {
    dlogits[target] = p;
  } else {
    dlogits[target] = to_bf16(p);
  }
}

void cross_entropy_row(const CrossEntropy& a, int64_t t) {
  const int64_t V = a.logits.dims[1];
  const int32_t target = a.target.as<int32_t>()[t];
  const float* x = a.logits.as<float>() + t * V;
  if (target < 0) {
    if (!a.lse.empty()) a.lse.as<double>()[t] = log_sum(normalizer(x, V));
    a.loss.as<float>()[t] = 0;
    if (a.dlogits.empty()) return;
    const int64_t size = dtype_bytes(a.dlogits.dtype);
    std::fill_n(static_cast<char*>(a.dlogits.data) + t * V * size, V * size, char{0});
    return;
  }
  const Normalizer z = normalizer(x, V);
  a.loss.as<float>()[t] = static_cast<float>(log_sum(z) - static_cast<double>(x[target]));
  if (!a.lse.empty()) a.lse.as<double>()[t] = log_sum(z);
  if (a.dlogits.empty()) return;
  if (a.dlogits.dtype == DType::kBF16) {
    gradient_row(a.dlogits.as<BF16>() + t * V, x, V, z, target);
  } else {
    gradient_row(a.dlogits.as<float>() + t * V, x, V, z, target);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine::cpu {

HWY_EXPORT(cross_entropy_row);

void cross_entropy(Context& ctx, const CrossEntropy& a) {
  ctx.pool->parallel_for(a.logits.dims[0], [&](int64_t t, int) {
    HWY_DYNAMIC_DISPATCH(cross_entropy_row)(a, t);
  });
}

}  // namespace moraine::cpu
#endif  // HWY_ONCE
