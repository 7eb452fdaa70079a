// What both AVX-512 tiles of quantised products do with a vector.
//
// Forms with a mask of all lanes: those without one trip -Wmaybe-uninitialized in gcc 12.
#pragma once

#if defined(__x86_64__)

#include <hwy/highway.h>
#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/linear_quantised.h"

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

// Sums of a panel, between its own place and that of y.
HWY_INLINE void copy_sums(float* to, int64_t to_stride, const float* from, int64_t from_stride,
                          int64_t rows) {
  for (int64_t i = 0; i < rows; ++i, to += to_stride, from += from_stride) {
    _mm512_storeu_ps(to, _mm512_loadu_ps(from));
    _mm512_storeu_ps(to + 16, _mm512_loadu_ps(from + 16));
  }
}

// A run is read a row of 128 bytes after another, of q6 two of low bits and one of high ones at a step. A step has
// kParts times four inputs: part p those of number step + p * kSteps.
template <int kBits>
constexpr int kParts = kBits == 6 ? 4 : 8 / kBits;
template <int kBits>
constexpr int64_t kSteps = kQuantisedRun / 4 / kParts<kBits>;

// Of each byte the lower or upper half.
template <bool kUpper>
HWY_INLINE __m512i halves(__m512i v) {
  return _mm512_and_si512(kUpper ? _mm512_srli_epi16(v, 4) : v, _mm512_set1_epi8(15));
}

// The two high bits of part kPart of a step of q6, where they belong.
template <int kPart>
HWY_INLINE __m512i high_bits(__m512i v) {
  const __m512i there =
      kPart < 2 ? _mm512_slli_epi16(v, 4 - 2 * kPart) : _mm512_srli_epi16(v, 2 * kPart - 4);
  return _mm512_and_si512(there, _mm512_set1_epi8(0x30));
}

// Integers of part kPart of a step, of the 16 columns at `run`.
template <int kBits, int kPart>
HWY_INLINE __m512i integers_of(const uint8_t* run, int64_t step) {
  const auto row = [&](int64_t r) HWY_ATTR { return _mm512_loadu_si512(run + r * kRowBytes); };
  if constexpr (kBits == 8) {
    return row(step);
  } else if constexpr (kBits == 4) {
    return halves<kPart == 1>(row(step));
  } else {
    const __m512i low = halves<kPart >= 2>(row(row_of_four<6>(step + kPart * kSteps<6>)));
    return _mm512_or_si512(low, high_bits<kPart>(row(row_of_high_bits(step))));
  }
}

}  // namespace moraine::cpu

HWY_POP_ATTRIBUTES

#endif
