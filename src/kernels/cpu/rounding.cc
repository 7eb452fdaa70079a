// Rounding: 16 lanes are one vector of AVX-512, two of AVX2, four of SSE2.
#include "kernels/cpu/rounding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rounding.cc"
#include "hwy/foreach_target.h"  // compiles this file once per target
#include "hwy/highway.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kSumLanes = 16;

// Sums of importance * w * q and importance * q * q for q = nearest(w * inverse).
struct ScaleFit {
  float wq, qq;
};

float added_lanes(const float (&lanes)[kSumLanes]) {
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

ScaleFit fit_scale(const WeightBlock& b, float inverse, float half) {
  const hn::CappedTag<float, kSumLanes> d;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(d));
  constexpr int64_t kVectors = kSumLanes / kLanes;
  const auto by = hn::Set(d, inverse), least = hn::Set(d, -half), most = hn::Set(d, half - 1);
  hn::Vec<decltype(d)> wq[kVectors], qq[kVectors];
  for (int64_t v = 0; v < kVectors; ++v) wq[v] = qq[v] = hn::Zero(d);
  for (int64_t i = 0; i < kQuantisedBlock; i += kSumLanes) {
    for (int64_t v = 0; v < kVectors; ++v) {
      const auto w = hn::LoadU(d, b.w + i + v * kLanes);
      const auto q = hn::Round(hn::Min(hn::Max(hn::Mul(w, by), least), most));
      const auto weighted = hn::Mul(hn::LoadU(d, b.importance + i + v * kLanes), q);
      wq[v] = hn::Add(wq[v], hn::Mul(weighted, w));
      qq[v] = hn::Add(qq[v], hn::Mul(weighted, q));
    }
  }
  float lanes_wq[kSumLanes], lanes_qq[kSumLanes];
  for (int64_t v = 0; v < kVectors; ++v) {
    hn::StoreU(wq[v], d, lanes_wq + v * kLanes);
    hn::StoreU(qq[v], d, lanes_qq + v * kLanes);
  }
  return {added_lanes(lanes_wq), added_lanes(lanes_qq)};
}

// The scale of least weighted error among candidates around the one that gives the largest weight the least integer.
float find_scale(const WeightBlock& b, float largest, int half) {
  float best = 0, best_gain = -1;
  for (int candidate = -9; candidate <= 9; ++candidate) {
    const float least = static_cast<float>(half) + 0.1f * static_cast<float>(candidate);
    const ScaleFit fit = fit_scale(b, -least / largest, static_cast<float>(half));
    // With the best scale for these integers, wq / qq, squares of errors are less by wq^2 / qq.
    if (!(fit.qq > 0) || fit.wq * fit.wq <= best_gain * fit.qq) continue;
    best = fit.wq / fit.qq;
    best_gain = fit.wq * fit.wq / fit.qq;
  }
  return to_float(to_bf16(best));
}

void add_errors(const float* error, const float* factors, int64_t count, float* u) {
  const hn::CappedTag<float, kSumLanes> d;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(d));
  for (int64_t r = 0; r < cpu::kRoundedRows; r += kLanes) {
    const auto e = hn::LoadU(d, error + r);
    for (int64_t j = 0; j < count; ++j) {
      float* to = u + j * cpu::kRoundedRows + r;
      hn::StoreU(hn::Add(hn::LoadU(d, to), hn::Mul(e, hn::Set(d, factors[j]))), d, to);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine {
namespace {

HWY_EXPORT(find_scale);
HWY_EXPORT(add_errors);

}  // namespace

namespace cpu {

float best_scale(const WeightBlock& block, float largest, int half) {
  return HWY_DYNAMIC_DISPATCH(find_scale)(block, largest, half);
}

void pass_on_errors(const float* error, const float* factors, int64_t count, float* u) {
  HWY_DYNAMIC_DISPATCH(add_errors)(error, factors, count, u);
}

}  // namespace cpu
}  // namespace moraine
#endif  // HWY_ONCE
