// Simd: load and store f32 vectors from f32 or bf16 memory, for every Highway target.
//
// Include it after "hwy/foreach_target.h" in a file that Highway compiles once per target; it has no
// ordinary include guard for that reason. All arithmetic is f32; a bf16 store rounds to nearest even,
// exactly as to_bf16 (NaN stays NaN).
//
//   const DF df; VF v = load(df, p); store(v, df, p);      p: float* or BF16*, Lanes(df) elements
//   load_n(df, p, n), store_n(v, df, p, n)                  n < Lanes(df) elements; missing lanes are 0
//   exp_f(df, v)                                            e^v, 1 to 2 ulp, 0 below -104, lane by lane
#include "tensor/dtype.h"

#if defined(MORAINE_KERNELS_CPU_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MORAINE_KERNELS_CPU_SIMD_H_
#undef MORAINE_KERNELS_CPU_SIMD_H_
#else
#define MORAINE_KERNELS_CPU_SIMD_H_
#endif

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

HWY_INLINE VF load(DF df, const float* p) { return hn::LoadU(df, p); }

HWY_INLINE VF load(DF df, const BF16* p) {
  const hn::Rebind<uint16_t, DF> d16;
  const hn::RebindToUnsigned<DF> d32;
  const auto half = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(d32, half)));
}

HWY_INLINE void store(VF v, DF df, float* p) { hn::StoreU(v, df, p); }

HWY_INLINE void store(VF v, DF, BF16* p) {
  const hn::Rebind<uint16_t, DF> d16;
  const hn::RebindToUnsigned<DF> d32;
  const auto bits = hn::BitCast(d32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fff))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d32, 0x40));
  const auto nan = hn::RebindMask(d32, hn::IsNaN(v));
  const auto both = hn::IfThenElse(nan, quiet, rounded);
  // The values are below 2^16, so the saturating signed-to-unsigned demotion is exact.
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(hn::RebindToSigned<DF>(), both)), d16,
             reinterpret_cast<uint16_t*>(p));
}

template <class E>
HWY_INLINE VF load_n(DF df, const E* p, size_t n) {
  HWY_ALIGN E buffer[hn::MaxLanes(DF())] = {};
  for (size_t i = 0; i < n; ++i) buffer[i] = p[i];
  return load(df, buffer);
}

template <class E>
HWY_INLINE void store_n(VF v, DF df, E* p, size_t n) {
  HWY_ALIGN E buffer[hn::MaxLanes(DF())];
  store(v, df, buffer);
  for (size_t i = 0; i < n; ++i) p[i] = buffer[i];
}

HWY_INLINE VF exp_f(DF df, VF v) { return hn::Exp(df, v); }

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
