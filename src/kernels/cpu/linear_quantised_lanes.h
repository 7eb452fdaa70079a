// What both AVX-512 tiles of quantised products do with a vector.
//
// Forms with a mask of all lanes: those without one trip -Wmaybe-uninitialized in gcc 12.
#pragma once

#if defined(__x86_64__)

#include <hwy/highway.h>
#include <immintrin.h>

#include <cstdint>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,fma,avx2,bmi,bmi2")

namespace moraine::cpu {

// Sixteen bf16.
HWY_INLINE __m512 load_scales(const uint8_t* from) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(
      _mm512_maskz_slli_epi32(0xffff, _mm512_maskz_cvtepu16_epi32(0xffff, half), 16));
}

// y + integers * (step * scale).
HWY_INLINE __m512 add_scaled(__m512 y, __m512i integers, __m512 step, __m512 scale) {
  return _mm512_fmadd_ps(_mm512_maskz_cvtepi32_ps(0xffff, integers), _mm512_mul_ps(step, scale), y);
}

// offset_sum in every lane: the number comes from memory into all of them at once.
template <int kBits>
HWY_INLINE __m512i offset_sums(const int32_t& minus) {
  return _mm512_maskz_srai_epi32(0xffff, _mm512_set1_epi32(minus), 8 - kBits);
}

// Both halves of each byte of v.
struct Halves {
  __m512i low, high;
};
HWY_INLINE Halves halves(__m512i v) {
  const __m512i mask = _mm512_set1_epi8(15);
  return {_mm512_and_si512(v, mask), _mm512_and_si512(_mm512_srli_epi16(v, 4), mask)};
}

// Integers of 6 bits: their low four, with the high two from h. kPart: which of the eight rows of 128 bytes the low
// bits are of, divided by 4 (kernels/quantised.h).
template <int kPart>
HWY_INLINE Halves with_high_bits(Halves low, __m512i h) {
  const __m512i mask = _mm512_set1_epi8(0x30);
  const __m512i below = _mm512_slli_epi16(h, 4 - 2 * kPart),
                above = _mm512_srli_epi16(h, 2 * kPart);
  return {_mm512_or_si512(low.low, _mm512_and_si512(below, mask)),
          _mm512_or_si512(low.high, _mm512_and_si512(above, mask))};
}

}  // namespace moraine::cpu

HWY_POP_ATTRIBUTES

#endif
