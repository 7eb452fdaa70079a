// Exp: e^v for v <= 0, half the instructions of the general exp_f.
//
//   exp_nonpositive(df, v)   within 1.2 ulp (0.9 with fused multiply-add); 0 below -87, where e^v would soon
//                            be subnormal, and at -inf; NaN stays NaN; v > 0 is the caller's bug
//
// e^v = 2^n e^r, n = round(v / ln 2), |r| <= ln 2 / 2; e^r = 1 + r + r^2 g(r), g of degree 4:
// minimax of the relative error (3.1e-9, a twentieth of a rounding) by Lawson's algorithm. As
// simd.h: included after "hwy/foreach_target.h", once per Highway target.
#include "kernels/cpu/simd.h"

#if defined(MORAINE_KERNELS_CPU_EXP_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MORAINE_KERNELS_CPU_EXP_H_
#undef MORAINE_KERNELS_CPU_EXP_H_
#else
#define MORAINE_KERNELS_CPU_EXP_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {

HWY_INLINE VF exp_nonpositive(DF df, VF v) {
  const hn::RebindToSigned<DF> di;
  // Adding 1.5 * 2^23 + 127 leaves round(v / ln 2) + 127, the exponent field of 2^n, in the lowest
  // bits.
  const VF magic = hn::Set(df, 12583039.0f);
  const VF shifted = hn::MulAdd(v, hn::Set(df, 1.44269504f), magic);
  const VF n = hn::Sub(shifted, magic);
  // ln 2 in two parts; n times the first is exact.
  const VF coarse = hn::NegMulAdd(n, hn::Set(df, 0.693145751953125f), v);
  const VF r = hn::NegMulAdd(n, hn::Set(df, 1.4286068e-06f), coarse);
  VF p = hn::MulAdd(hn::Set(df, 1.3814433478e-03f), r, hn::Set(df, 8.3687966689e-03f));
  p = hn::MulAdd(p, r, hn::Set(df, 4.1668396443e-02f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.6666519642e-01f));
  p = hn::MulAdd(p, r, hn::Set(df, 4.9999994040e-01f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f));
  const VF power = hn::BitCast(df, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  return hn::IfThenZeroElse(hn::Lt(v, hn::Set(df, -87.0f)), hn::Mul(p, power));
}

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
