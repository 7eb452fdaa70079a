// Lanes: loops over a row in whole vectors with one shorter step at the end.
//
// As simd.h: included after "hwy/foreach_target.h", once per Highway target.
//
//   for_lanes(n, [&](int64_t i, auto part) MR_LANES {
//     put(Mul(get(df, x + i, part), s), df, y + i, part);
//   });
//
// `part` is Whole or Rest. get() reads missing lanes as 0, put() does not write them. get_pairs and
// put_pairs take memory of interleaved pairs: p[0], p[2], ... and p[1], p[3], ...
#include "kernels/cpu/simd.h"

#if defined(MORAINE_KERNELS_CPU_LANES_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MORAINE_KERNELS_CPU_LANES_H_
#undef MORAINE_KERNELS_CPU_LANES_H_
#else
#define MORAINE_KERNELS_CPU_LANES_H_
#endif

// The body must be inlined: its sums are captured by reference and belong in registers.
#undef MR_LANES
#define MR_LANES HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {

struct Whole {};
struct Rest {
  size_t n;  // 0 < n < Lanes(DF())
};

template <class F>
HWY_INLINE void for_lanes(int64_t n, const F& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) f(i, Whole());
  if (i < n) f(i, Rest{static_cast<size_t>(n - i)});
}

template <class E>
HWY_INLINE VF get(DF df, const E* p, Whole) {
  return load(df, p);
}
template <class E>
HWY_INLINE VF get(DF df, const E* p, Rest part) {
  return load_n(df, p, part.n);
}
template <class E>
HWY_INLINE void put(VF v, DF df, E* p, Whole) {
  store(v, df, p);
}
template <class E>
HWY_INLINE void put(VF v, DF df, E* p, Rest part) {
  store_n(v, df, p, part.n);
}

HWY_INLINE void get_pairs(DF df, const float* p, Whole, VF& even, VF& odd) {
  hn::LoadInterleaved2(df, p, even, odd);
}
// A pair of bf16 is one 32-bit word, the first element in its lower half.
HWY_INLINE void get_pairs(DF df, const BF16* p, Whole, VF& even, VF& odd) {
  const hn::RebindToUnsigned<DF> d32;
  const auto words = hn::LoadU(d32, reinterpret_cast<const uint32_t*>(p));
  even = hn::BitCast(df, hn::ShiftLeft<16>(words));
  odd = hn::BitCast(df, hn::And(words, hn::Set(d32, 0xffff0000u)));
}
template <class E>
HWY_INLINE void get_pairs(DF df, const E* p, Rest part, VF& even, VF& odd) {
  HWY_ALIGN E buffer[2 * hn::MaxLanes(DF())] = {};
  for (size_t i = 0; i < 2 * part.n; ++i) buffer[i] = p[i];
  get_pairs(df, buffer, Whole(), even, odd);
}

HWY_INLINE void put_pairs(VF even, VF odd, DF df, float* p, Whole) {
  hn::StoreInterleaved2(even, odd, df, p);
}
// bf16 of each lane in the upper half of its 32-bit word, rounded as store() of simd.h does.
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> upper_bf16(DF df, VF v) {
  const hn::RebindToUnsigned<DF> d32;
  const auto bits = hn::BitCast(d32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fff)));
  const auto quiet = hn::Or(bits, hn::Set(d32, 0x400000));
  const auto nan = hn::RebindMask(d32, hn::IsNaN(hn::BitCast(df, bits)));
  return hn::And(hn::IfThenElse(nan, quiet, rounded), hn::Set(d32, 0xffff0000u));
}
HWY_INLINE void put_pairs(VF even, VF odd, DF df, BF16* p, Whole) {
  const hn::RebindToUnsigned<DF> d32;
  const auto words = hn::Or(hn::ShiftRight<16>(upper_bf16(df, even)), upper_bf16(df, odd));
  hn::StoreU(words, d32, reinterpret_cast<uint32_t*>(p));
}
template <class E>
HWY_INLINE void put_pairs(VF even, VF odd, DF df, E* p, Rest part) {
  HWY_ALIGN E buffer[2 * hn::MaxLanes(DF())];
  put_pairs(even, odd, df, buffer, Whole());
  for (size_t i = 0; i < 2 * part.n; ++i) p[i] = buffer[i];
}

HWY_INLINE float sum_lanes(DF df, VF v) { return hn::GetLane(hn::SumOfLanes(df, v)); }

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
