// FlatMath: one vector body for each loop, used for whole vectors and for the tail alike.
#include "optim/flat_math.h"

#include <algorithm>

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/flat_math.cc"
#include "hwy/foreach_target.h"  // compiles this file once per target
#include "hwy/highway.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {

constexpr int64_t kAccumulators = 16;  // doubles; two AVX-512 vectors, eight SSE2 vectors

double SumOfSquares(const float* x, int64_t n) {
  const hn::CappedTag<double, kAccumulators> d;
  const hn::Rebind<float, decltype(d)> df;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(d));
  constexpr int64_t kVectors = kAccumulators / kLanes;
  hn::Vec<decltype(d)> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + kAccumulators <= n; i += kAccumulators) {
    for (int64_t k = 0; k < kVectors; ++k) {
      const auto v = hn::PromoteTo(d, hn::LoadU(df, x + i + k * kLanes));
      sums[k] = hn::Add(sums[k], hn::Mul(v, v));  // the product of two floats is exact in double
    }
  }
  double lanes[kAccumulators];
  for (int64_t k = 0; k < kVectors; ++k) hn::StoreU(sums[k], d, lanes + k * kLanes);
  for (int64_t k = 0; i < n; ++i, ++k)
    lanes[k] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  for (int64_t half = kAccumulators / 2; half > 0; half /= 2) {
    for (int64_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
  }
  return lanes[0];
}

void Scale(float* x, int64_t n, float factor) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const VF f = hn::Set(df, factor);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(hn::Mul(load(df, x + i), f), df, x + i);
  for (; i < n; ++i) x[i] *= factor;
}

#if HWY_TARGET == HWY_SCALAR  // has no 128-bit shuffles
HWY_INLINE void Transpose4x4(float* out, int64_t out_stride, const float* in, int64_t in_stride) {
  for (int64_t i = 0; i < 16; ++i) out[i % 4 * out_stride + i / 4] = in[i / 4 * in_stride + i % 4];
}
#else
// 4 x 4 with 128-bit shuffles: half a cycle per element, below the cost of its memory traffic.
HWY_INLINE void Transpose4x4(float* out, int64_t out_stride, const float* in, int64_t in_stride) {
  const hn::Full128<float> d;
  const hn::Full128<double> dd;
  const auto a = hn::LoadU(d, in), b = hn::LoadU(d, in + in_stride);
  const auto c = hn::LoadU(d, in + 2 * in_stride), e = hn::LoadU(d, in + 3 * in_stride);
  const auto ab0 = hn::BitCast(dd, hn::InterleaveLower(d, a, b));  // a0 b0 a1 b1
  const auto ab1 = hn::BitCast(dd, hn::InterleaveUpper(d, a, b));
  const auto ce0 = hn::BitCast(dd, hn::InterleaveLower(d, c, e));
  const auto ce1 = hn::BitCast(dd, hn::InterleaveUpper(d, c, e));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, ab0, ce0)), d, out);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, ab0, ce0)), d, out + out_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, ab1, ce1)), d, out + 2 * out_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, ab1, ce1)), d, out + 3 * out_stride);
}
#endif

void Transpose(const TransposeBlock& a) {
  constexpr int64_t kTile = 16;  // one cache line of either matrix
  float* const out = a.out;
  const float* const in = a.in;
  const int64_t rows = a.rows, cols = a.cols;
  for (int64_t r0 = a.row_begin; r0 < a.row_end; r0 += kTile) {
    const int64_t r1 = std::min(r0 + kTile, a.row_end);
    for (int64_t c0 = 0; c0 < cols; c0 += kTile) {
      const int64_t c1 = std::min(c0 + kTile, cols);
      int64_t r = r0;
      for (; r + 4 <= r1; r += 4) {
        int64_t c = c0;
        for (; c + 4 <= c1; c += 4) Transpose4x4(out + c * rows + r, rows, in + r * cols + c, cols);
        for (; c < c1; ++c) {
          for (int64_t k = 0; k < 4; ++k) out[c * rows + r + k] = in[(r + k) * cols + c];
        }
      }
      for (; r < r1; ++r) {
        for (int64_t c = c0; c < c1; ++c) out[c * rows + r] = in[r * cols + c];
      }
    }
  }
}

template <class E>
HWY_INLINE VF MomentumVector(const DF df, const MomentumBlock& a, VF g, VF momentum, VF* kept) {
  const VF scaled = hn::Mul(g, hn::Set(df, a.g_scale));
  const VF mu = hn::Set(df, a.mu);
  *kept = hn::MulAdd(mu, momentum, scaled);
  return a.nesterov ? hn::MulAdd(mu, *kept, scaled) : *kept;
}

template <class E>
void Momentum(const MomentumBlock& a) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  E* momentum = static_cast<E*>(a.momentum);
  VF kept;
  int64_t i = 0;
  for (; i + lanes <= a.n; i += lanes) {
    store(MomentumVector<E>(df, a, load(df, a.g + i), load(df, momentum + i), &kept), df,
          a.out + i);
    store(kept, df, momentum + i);
  }
  if (i < a.n) {
    const size_t rest = static_cast<size_t>(a.n - i);
    const VF g = load_n(df, a.g + i, rest), old = load_n(df, momentum + i, rest);
    store_n(MomentumVector<E>(df, a, g, old, &kept), df, a.out + i, rest);
    store_n(kept, df, momentum + i, rest);
  }
}

void MomentumAny(const MomentumBlock& a) {
  a.momentum_dtype == DType::kBF16 ? Momentum<BF16>(a) : Momentum<float>(a);
}

HWY_INLINE VF DecayAndSubtractVector(const DF df, VF w, VF x, float keep, float rate) {
  return hn::NegMulAdd(x, hn::Set(df, rate), hn::Mul(w, hn::Set(df, keep)));
}

void DecayAndSubtract(float* w, const float* x, int64_t n, float keep, float rate) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    store(DecayAndSubtractVector(df, load(df, w + i), load(df, x + i), keep, rate), df, w + i);
  }
  if (i < n) {
    const size_t rest = static_cast<size_t>(n - i);
    const VF old = load_n(df, w + i, rest), step = load_n(df, x + i, rest);
    store_n(DecayAndSubtractVector(df, old, step, keep, rate), df, w + i, rest);
  }
}

struct AdamWVectors {
  VF w, m, v;
};

HWY_INLINE AdamWVectors AdamWVector(const DF df, const AdamWBlock& a, AdamWVectors s, VF gradient) {
  const VF g = hn::Mul(gradient, hn::Set(df, a.g_scale));
  s.m = hn::MulAdd(hn::Set(df, a.beta1), s.m, hn::Mul(hn::Set(df, a.one_minus_beta1), g));
  s.v =
      hn::MulAdd(hn::Set(df, a.beta2), s.v, hn::Mul(hn::Set(df, a.one_minus_beta2), hn::Mul(g, g)));
  const VF root = hn::Sqrt(hn::Mul(s.v, hn::Set(df, a.v_correction)));
  const VF move =
      hn::Div(hn::Mul(s.m, hn::Set(df, a.m_correction)), hn::Add(root, hn::Set(df, a.eps)));
  s.w = DecayAndSubtractVector(df, s.w, move, a.keep, a.rate);
  return s;
}

void AdamW(const AdamWBlock& a) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  int64_t i = 0;
  for (; i + lanes <= a.n; i += lanes) {
    const AdamWVectors s = AdamWVector(
        df, a, {load(df, a.w + i), load(df, a.m + i), load(df, a.v + i)}, load(df, a.g + i));
    store(s.w, df, a.w + i);
    store(s.m, df, a.m + i);
    store(s.v, df, a.v + i);
  }
  if (i < a.n) {
    const size_t rest = static_cast<size_t>(a.n - i);
    const AdamWVectors s = AdamWVector(
        df, a, {load_n(df, a.w + i, rest), load_n(df, a.m + i, rest), load_n(df, a.v + i, rest)},
        load_n(df, a.g + i, rest));
    store_n(s.w, df, a.w + i, rest);
    store_n(s.m, df, a.m + i, rest);
    store_n(s.v, df, a.v + i, rest);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine {

HWY_EXPORT(SumOfSquares);
HWY_EXPORT(Scale);
HWY_EXPORT(Transpose);
HWY_EXPORT(MomentumAny);
HWY_EXPORT(DecayAndSubtract);
HWY_EXPORT(AdamW);

double sum_of_squares_block(const float* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquares)(x, n);
}

void scale_block(float* x, int64_t n, float factor) { HWY_DYNAMIC_DISPATCH(Scale)(x, n, factor); }

void transpose_block(const TransposeBlock& a) { HWY_DYNAMIC_DISPATCH(Transpose)(a); }

void momentum_block(const MomentumBlock& a) {
  MR_CHECK(a.momentum_dtype == DType::kF32 || a.momentum_dtype == DType::kBF16);
  HWY_DYNAMIC_DISPATCH(MomentumAny)(a);
}

void decay_and_subtract_block(float* w, const float* x, int64_t n, float keep, float rate) {
  HWY_DYNAMIC_DISPATCH(DecayAndSubtract)(w, x, n, keep, rate);
}

void adamw_block(const AdamWBlock& a) { HWY_DYNAMIC_DISPATCH(AdamW)(a); }

}  // namespace moraine
#endif  // HWY_ONCE
