// Exp: e^v for v <= 0, what is made of it, and log: the same bits on every target, because they are ours.
//
//   exp_nonpositive(v)   as kernels/cpu/exp.h: within 0.9 ulp; 0 below -87; NaN stays NaN; v > 0 is the caller's bug
//   sigmoid(v)           1 / (1 + e^-v), of e^-|v|
//   log_positive(v)      log v for normal v > 0: within 1e-7 (1 + |log v|); anything else is the caller's bug
//
//   log: v = 2^n m, sqrt(1/2) <= m < sqrt 2; s = (m - 1) / (m + 1), |s| < 0.172;
//   log m = 2 s (1 + s^2/3 + s^4/5 + s^6/7 + s^8/9), whose next term is below 2.3e-9 of it
#pragma once

#include "kernels/gpu/device.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

MR_DEVICE float exp_nonpositive(float v) {
  // Adding 1.5 * 2^23 + 127 leaves round(v / ln 2) + 127, the exponent field of 2^n, in the lowest bits.
  constexpr float kMagic = 12583039.0f;
  const float shifted = fused(v, 1.44269504f, kMagic), n = shifted - kMagic;
  // ln 2 in two parts; n times the first is exact.
  const float r = fused(-n, 1.4286068e-06f, fused(-n, 0.693145751953125f, v));
  float p = fused(1.3814433478e-03f, r, 8.3687966689e-03f);
  p = fused(p, r, 4.1668396443e-02f);
  p = fused(p, r, 1.6666519642e-01f);
  p = fused(p, r, 4.9999994040e-01f);
  p = fused(p, r, 1.0f);
  p = fused(p, r, 1.0f);
  return v < -87.0f ? 0.0f : p * from_bits(bits_of(shifted) << 23);
}

MR_DEVICE float sigmoid(float v) {
  const float e = exp_nonpositive(v < 0 ? v : -v);
  return (v < 0 ? e : 1.0f) / (1.0f + e);
}

MR_DEVICE float log_positive(float v) {
  // The exponent, such that what remains is at least sqrt(1/2), whose bits these are.
  constexpr uint32_t kRootHalf = 0x3f3504f3u;
  const int n = static_cast<int>(bits_of(v) - kRootHalf) >> 23;
  const float m = from_bits(bits_of(v) - (static_cast<uint32_t>(n) << 23));
  const float s = (m - 1.0f) / (m + 1.0f), s2 = s * s;
  float p = fused(s2, 1.0f / 9, 1.0f / 7);
  p = fused(p, s2, 1.0f / 5);
  p = fused(p, s2, 1.0f / 3);
  const float log_m = fused(2.0f * s * s2, p, 2.0f * s), wide = static_cast<float>(n);
  return fused(wide, 0.693145751953125f, fused(wide, 1.4286068e-06f, log_m));
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
