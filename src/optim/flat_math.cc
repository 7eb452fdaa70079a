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

using DU = hn::RebindToUnsigned<DF>;
using VU = hn::Vec<DU>;

// Keys of the positions from `first` on, a vector at a time.
class WordKeys {
 public:
  explicit HWY_INLINE WordKeys(int64_t first)
      : next_(hn::Mul(hn::Iota(DU(), static_cast<uint32_t>(first)), hn::Set(DU(), kSpread))) {}

  HWY_INLINE VU next() {
    const DU du;
    const VU mixed = hn::Mul(hn::Xor(next_, hn::ShiftRight<15>(next_)), hn::Set(du, kMix));
    next_ = hn::Add(next_, hn::Set(du, kSpread * static_cast<uint32_t>(hn::Lanes(du))));
    return hn::Or(hn::Xor(mixed, hn::ShiftRight<13>(mixed)), hn::Set(du, 1));
  }

 private:
  static constexpr uint32_t kSpread = 0x9e3779b1, kMix = 0x85ebca6b;  // odd: no position is lost
  VU next_;
};

// Products of 32 x 32 bits, summed in 64. No constructors: those that are not written out are compiled for no target.
struct WordSum {
#if HWY_TARGET == HWY_SCALAR  // has no even and odd lanes
  uint64_t sum;

  static HWY_INLINE WordSum none() { return {0}; }
  HWY_INLINE void add(VF x, VU key) {
    sum += uint64_t{hn::GetLane(hn::BitCast(DU(), x))} * hn::GetLane(key);
  }
  HWY_INLINE uint64_t total() const { return sum; }
#else
  using DW = hn::RepartitionToWide<DU>;
  hn::Vec<DW> even, odd;

  static HWY_INLINE WordSum none() { return {hn::Zero(DW()), hn::Zero(DW())}; }
  HWY_INLINE void add(VF x, VU key) {
    const VU bits = hn::BitCast(DU(), x);
    even = hn::Add(even, hn::MulEven(bits, key));
    odd = hn::Add(odd, hn::MulEven(upper_to_lower(bits), upper_to_lower(key)));
  }
  HWY_INLINE uint64_t total() const {
    return hn::GetLane(hn::SumOfLanes(DW(), hn::Add(even, odd)));
  }
  static HWY_INLINE VU upper_to_lower(VU x) {  // of each two
    return hn::BitCast(DU(), hn::ShiftRight<32>(hn::BitCast(DW(), x)));
  }
#endif
};

uint64_t WordSumOf(const float* x, int64_t n, int64_t first) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  WordKeys keys(first);
  WordSum sum = WordSum::none();
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) sum.add(load(df, x + i), keys.next());
  if (i < n) sum.add(load_n(df, x + i, static_cast<size_t>(n - i)), keys.next());
  return sum.total();
}

struct AdamWVectors {
  VF w, m, v;
};

struct AdamWWordSums {
  WordSum w, m, v;
  static HWY_INLINE AdamWWordSums none() {
    return {WordSum::none(), WordSum::none(), WordSum::none()};
  }
  HWY_INLINE void add(const AdamWVectors& s, VU keys) {
    w.add(s.w, keys);
    m.add(s.m, keys);
    v.add(s.v, keys);
  }
  HWY_INLINE AdamWSums total() const { return {.w = w.total(), .m = m.total(), .v = v.total()}; }
};

// What is not to be summed costs nothing.
struct NoKeys {
  HWY_INLINE int next() { return 0; }
};
struct NoSums {
  HWY_INLINE void add(const AdamWVectors&, int) {}
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

HWY_INLINE AdamWVectors LoadAdamW(const DF df, const AdamWBlock& a, int64_t i) {
  return {.w = load(df, a.w + i), .m = load(df, a.m + i), .v = load(df, a.v + i)};
}

HWY_INLINE AdamWVectors LoadAdamW(const DF df, const AdamWBlock& a, int64_t i, size_t rest) {
  return {.w = load_n(df, a.w + i, rest),
          .m = load_n(df, a.m + i, rest),
          .v = load_n(df, a.v + i, rest)};
}

template <class Keys, class Sums>
HWY_INLINE void AdamWLoop(const AdamWBlock& a, Keys keys, Sums& before, Sums& after) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  int64_t i = 0;
  for (; i + lanes <= a.n; i += lanes) {
    const AdamWVectors old = LoadAdamW(df, a, i);
    const AdamWVectors s = AdamWVector(df, a, old, load(df, a.g + i));
    store(s.w, df, a.w + i);
    store(s.m, df, a.m + i);
    store(s.v, df, a.v + i);
    const auto key = keys.next();
    before.add(old, key);
    after.add(s, key);
  }
  if (i < a.n) {
    const size_t rest = static_cast<size_t>(a.n - i);
    const AdamWVectors old = LoadAdamW(df, a, i, rest);
    const AdamWVectors s = AdamWVector(df, a, old, load_n(df, a.g + i, rest));
    store_n(s.w, df, a.w + i, rest);
    store_n(s.m, df, a.m + i, rest);
    store_n(s.v, df, a.v + i, rest);
    const auto key = keys.next();
    before.add(old, key);
    after.add(LoadAdamW(df, a, i, rest), key);  // lanes that are not there may be -0 in s
  }
}

void AdamW(const AdamWBlock& a) {
  NoSums none;
  AdamWLoop(a, NoKeys(), none, none);
}

AdamWSeen AdamWAndSums(const AdamWBlock& a, int64_t first) {
  AdamWWordSums before = AdamWWordSums::none(), after = AdamWWordSums::none();
  AdamWLoop(a, WordKeys(first), before, after);
  return {.before = before.total(), .after = after.total()};
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
HWY_EXPORT(AdamWAndSums);
HWY_EXPORT(WordSumOf);

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

AdamWSeen adamw_block_seen(const AdamWBlock& a, int64_t first) {
  return HWY_DYNAMIC_DISPATCH(AdamWAndSums)(a, first);
}

uint64_t word_sum_block(const float* x, int64_t n, int64_t first) {
  return HWY_DYNAMIC_DISPATCH(WordSumOf)(x, n, first);
}

}  // namespace moraine
#endif  // HWY_ONCE
