// Gelu with SIMD: the left tail of the normal distribution as density times a polynomial.
//
//   Phi(-x) = e^(-x^2/2) R(x), x >= 0. (x + c) R(x) runs from 1.875 at 0 to 0.399 at infinity and
//   is a polynomial of degree 8 in t = (x - c) / (x + c) to 1.5e-8 relative over [0, 14.5]
//   (weighted least squares iterated towards the minimax fit). In f32, R is within 4e-7. On the
//   right, Phi = 1 - Phi(-x).
#include "kernels/gelu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gelu.cc"
#include "hwy/foreach_target.h"

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/row_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {
namespace {

constexpr float kCentre = 3.75f;  // c: the best of a grid in steps of 0.25
constexpr float kFit[] = {4.4344972049e-04f, 5.0962864180e-04f,  -4.1690178329e-03f,
                          1.2000736323e-03f, 3.7492506378e-02f,  -1.5152083511e-01f,
                          3.5293960425e-01f, -5.8818827766e-01f, 7.5029407421e-01f};
constexpr float kFar = 14.5f;  // e^(-x^2/2) is 0 in f32 from here on
constexpr float kDensityAtZero = 0.3989422804f;

// e^(-x^2/2) for 0 <= x <= kFar. The square of the upper 12 bits of x is exact; what it lacks, at
// most 0.05, goes through a short series: rounding x^2 at once would cost 1e-5 relative at the far
// end.
HWY_INLINE VF bell(DF df, VF x) {
  const hn::RebindToUnsigned<DF> d32;
  const VF upper = hn::BitCast(df, hn::And(hn::BitCast(d32, x), hn::Set(d32, 0xfffff000u)));
  const VF half = hn::Set(df, -0.5f);
  const VF rest = hn::Mul(hn::Mul(half, hn::Add(x, upper)), hn::Sub(x, upper));
  VF series = hn::MulAdd(rest, hn::Set(df, 1.0f / 6), hn::Set(df, 0.5f));
  series = hn::MulAdd(hn::Mul(series, rest), rest, rest);
  const VF whole = exp_f(df, hn::Mul(half, hn::Mul(upper, upper)));
  return hn::MulAdd(whole, series, whole);
}

// Phi(x), and e^(-x^2/2) for the density.
HWY_INLINE VF normal_below(DF df, VF x, VF& exponential) {
  const VF size = hn::Min(hn::Abs(x), hn::Set(df, kFar)), c = hn::Set(df, kCentre);
  const VF inverse = hn::Div(hn::Set(df, 1.0f), hn::Add(size, c));
  const VF t = hn::Mul(hn::Sub(size, c), inverse);
  VF fit = hn::Set(df, kFit[0]);
  for (size_t k = 1; k < sizeof kFit / sizeof *kFit; ++k) {
    fit = hn::MulAdd(fit, t, hn::Set(df, kFit[k]));
  }
  exponential = bell(df, size);
  const VF tail = hn::Mul(exponential, hn::Mul(fit, inverse));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(df)), tail, hn::Sub(hn::Set(df, 1.0f), tail));
}

template <class E>
void forward_of(const GeluForward& a, int64_t begin, int64_t end) {
  const DF df;
  const E* in = static_cast<const E*>(a.x.data) + begin;
  E* out = static_cast<E*>(a.y.data) + begin;
  for_lanes(end - begin, [&](int64_t i, auto part) MR_LANES {
    const VF x = get(df, in + i, part);
    VF exponential;
    put(hn::Mul(x, normal_below(df, x, exponential)), df, out + i, part);
  });
}

template <class E>
void backward_of(const GeluBackward& a, int64_t begin, int64_t end) {
  const DF df;
  const E* in = static_cast<const E*>(a.x.data) + begin;
  const E* dy = static_cast<const E*>(a.dy.data) + begin;
  E* dx = static_cast<E*>(a.dx.data) + begin;
  for_lanes(end - begin, [&](int64_t i, auto part) MR_LANES {
    const VF x = get(df, in + i, part);
    VF exponential;
    const VF below = normal_below(df, x, exponential);
    const VF density = hn::Mul(exponential, hn::Set(df, kDensityAtZero));
    put(hn::Mul(get(df, dy + i, part), hn::MulAdd(x, density, below)), df, dx + i, part);
  });
}

void gelu_forward_part(const GeluForward& a, int64_t begin, int64_t end) {
  a.x.dtype == DType::kBF16 ? forward_of<BF16>(a, begin, end) : forward_of<float>(a, begin, end);
}

void gelu_backward_part(const GeluBackward& a, int64_t begin, int64_t end) {
  a.x.dtype == DType::kBF16 ? backward_of<BF16>(a, begin, end) : backward_of<float>(a, begin, end);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine {
namespace {

HWY_EXPORT(gelu_forward_part);
HWY_EXPORT(gelu_backward_part);

constexpr int64_t kElementsPerTask = 4096;  // about 5 microseconds

}  // namespace

namespace cpu {

void gelu_forward(Context& ctx, const GeluForward& a) {
  MR_CHECK(a.x.dtype != DType::kF64);
  for_row_tasks(ctx, a.x.count(), kElementsPerTask, [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(gelu_forward_part)(a, begin, end);
  });
}

void gelu_backward(Context& ctx, const GeluBackward& a) {
  MR_CHECK(a.x.dtype != DType::kF64);
  for_row_tasks(ctx, a.x.count(), kElementsPerTask, [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(gelu_backward_part)(a, begin, end);
  });
}

}  // namespace cpu
}  // namespace moraine
#endif  // HWY_ONCE
