// Rows to integers with AVX-512, 64 at a time; linear_quantised.cc has them for any machine.
//
// A block's largest |x| and its sum end as 16 partial ones; those of all blocks of a row are brought together at once.
#include "kernels/cpu/linear_quantised.h"

#if defined(__x86_64__)

#include <hwy/highway.h>
#include <immintrin.h>

#include <cstring>
#include <limits>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,fma,avx2,bmi,bmi2")

namespace moraine::cpu {
namespace {

static_assert(kQuantisedBlocks == 8);

HWY_INLINE __m512i load_line(const void* from) { return _mm512_loadu_si512(from); }

// ------------------------------------------------------------------------------- partial results

// Of each block 16 words.
struct Partial {
  alignas(64) int32_t words[kQuantisedBlocks][16];
};

struct Larger {
  static HWY_INLINE __m512i of(__m512i a, __m512i b) {
    return _mm512_maskz_max_epi32(0xffff, a, b);
  }
};
struct Added {
  static HWY_INLINE __m512i of(__m512i a, __m512i b) { return _mm512_add_epi32(a, b); }
};

// A's 16 words to eight, then B's: [A A B B] in quarters.
template <class Op>
HWY_INLINE __m512i halve(__m512i a, __m512i b) {
  return Op::of(_mm512_maskz_shuffle_i64x2(0xff, a, b, 0x44),
                _mm512_maskz_shuffle_i64x2(0xff, a, b, 0xee));
}
// [A A B B] and [C C D D] to [A B C D].
template <class Op>
HWY_INLINE __m512i quarter(__m512i ab, __m512i cd) {
  return Op::of(_mm512_maskz_shuffle_i64x2(0xff, ab, cd, 0x88),
                _mm512_maskz_shuffle_i64x2(0xff, ab, cd, 0xdd));
}

// Every block's words to one.
template <class Op>
HWY_INLINE __m256i together(const Partial& p) {
  const auto two = [&](int b) HWY_ATTR {
    return halve<Op>(load_line(p.words[b]), load_line(p.words[b + 1]));
  };
  const __m512i low = quarter<Op>(two(0), two(2)), high = quarter<Op>(two(4), two(6));
  // Of quarter q: blocks q and q + 4, twice each.
  const __m512i twice = Op::of(_mm512_maskz_unpacklo_epi32(0xffff, low, high),
                               _mm512_maskz_unpackhi_epi32(0xffff, low, high));
  const __m512i once = Op::of(twice, _mm512_maskz_shuffle_epi32(0xffff, twice, _MM_PERM_BADC));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0);
  return _mm512_maskz_extracti64x4_epi64(0xf, _mm512_maskz_permutexvar_epi32(0xffff, order, once),
                                         0);
}

// ------------------------------------------------------------------------------------------ blocks

// Sizes of numbers are ordered as their bits, and NaN is above all.
HWY_INLINE __m512i largest(const float* x) {
  const __m512i mask = _mm512_set1_epi32(0x7fffffff);
  __m512i most = _mm512_setzero_si512();
  HWY_UNROLL(8)
  for (int64_t i = 0; i < kQuantisedBlock; i += 16)
    most = Larger::of(most, _mm512_and_si512(load_line(x + i), mask));
  return most;
}
HWY_INLINE __m512i largest(const BF16* x) {
  const __m512i mask = _mm512_set1_epi16(0x7fff);
  __m512i most = _mm512_setzero_si512();
  HWY_UNROLL(8)
  for (int64_t i = 0; i < kQuantisedBlock; i += 32)
    most = _mm512_maskz_max_epu16(~__mmask32{0}, most, _mm512_and_si512(load_line(x + i), mask));
  const __m512i odd = _mm512_and_si512(most, _mm512_set1_epi32(0x7fff0000));
  return Larger::of(_mm512_maskz_slli_epi32(0xffff, most, 16), odd);
}

// To the nearest, to even on a tie.
HWY_INLINE __m512i nearest(__m512 x, __m512 factor) {
  return _mm512_maskz_cvtps_epi32(0xffff, _mm512_mul_ps(x, factor));
}

// The 64 integers at x as bytes.
HWY_INLINE __m512i bytes_of(const float* x, __m512 factor) {
  const auto part = [&](int i) HWY_ATTR { return nearest(_mm512_loadu_ps(x + 16 * i), factor); };
  const __m512i low = _mm512_packs_epi32(part(0), part(1)),
                high = _mm512_packs_epi32(part(2), part(3));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_maskz_permutexvar_epi32(0xffff, order, _mm512_packs_epi16(low, high));
}
HWY_INLINE __m512i bytes_of(const BF16* x, __m512 factor) {
  const auto part = [&](int i) HWY_ATTR {
    const __m512i pairs = load_line(x + 32 * i);
    const __m512i even = _mm512_maskz_slli_epi32(0xffff, pairs, 16),
                  odd = _mm512_and_si512(pairs, _mm512_set1_epi32(int32_t{-65536}));
    const __m512i second =
        _mm512_maskz_slli_epi32(0xffff, nearest(_mm512_castsi512_ps(odd), factor), 16);
    return _mm512_mask_mov_epi16(nearest(_mm512_castsi512_ps(even), factor), 0xaaaaaaaa, second);
  };
  const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  return _mm512_maskz_permutexvar_epi64(0xff, order, _mm512_packs_epi16(part(0), part(1)));
}

// Integers of a block, and partial sums of them plus 128.
template <class E>
HWY_INLINE __m512i quantise(const E* x, __m512 factor, int8_t* r) {
  const __m512i shift = _mm512_set1_epi8(int8_t{-128}), zero = _mm512_setzero_si512();
  __m512i sums = zero;
  HWY_UNROLL(2)
  for (int64_t i = 0; i < kQuantisedBlock; i += 64) {
    const __m512i bytes = bytes_of(x + i, factor);
    _mm512_storeu_si512(r + i, bytes);
    sums = _mm512_add_epi64(sums, _mm512_sad_epu8(_mm512_xor_si512(bytes, shift), zero));
  }
  return sums;
}

// -------------------------------------------------------------------------------------------- rows

// quantised_step of every block.
struct RowSteps {
  alignas(32) float step[kQuantisedBlocks], inverse[kQuantisedBlocks];
};
HWY_INLINE void find_steps(__m256 largest, RowSteps& all) {
  const __m256 most = _mm256_set1_ps(127.0f);
  const __mmask8 finite = _mm256_cmp_ps_mask(
                     largest, _mm256_set1_ps(std::numeric_limits<float>::max()), _CMP_LE_OQ),
                 some = _mm256_cmp_ps_mask(largest, _mm256_set1_ps(kLeastBlock), _CMP_GE_OQ);
  _mm256_store_ps(all.inverse, _mm256_maskz_div_ps(finite & some, most, largest));
  const __m256 nan = _mm256_set1_ps(std::numeric_limits<float>::quiet_NaN());
  _mm256_store_ps(all.step,
                  _mm256_mask_mov_ps(nan, finite, _mm256_maskz_div_ps(some, largest, most)));
}

template <class E>
void copy_rows_of(const RowCopy& c) {
  const int64_t whole = c.sum / kQuantisedBlock, rest = c.sum % kQuantisedBlock,
                blocks = whole + (rest > 0 ? 1 : 0);
  E last[kQuantisedBlock] = {};
  Partial partial = {};
  for (int64_t i = 0; i < c.rows; ++i) {
    QuantisedRow& to = static_cast<QuantisedRow*>(c.panel)[i];
    const E* from = static_cast<const E*>(c.from) + i * c.stride;
    if (rest > 0)
      std::memcpy(last, from + whole * kQuantisedBlock, static_cast<size_t>(rest) * sizeof(E));
    const auto block = [&](int64_t b) { return b < whole ? from + b * kQuantisedBlock : last; };
    for (int64_t b = 0; b < blocks; ++b) _mm512_store_si512(partial.words[b], largest(block(b)));
    RowSteps steps;
    find_steps(_mm256_castsi256_ps(together<Larger>(partial)), steps);
    for (int64_t b = 0; b < blocks; ++b) {
      int8_t* const r = to.r + b * kQuantisedBlock;
      __m512i sums = _mm512_setzero_si512();
      if (steps.inverse[b] == 0) {
        std::memset(r, 0, kQuantisedBlock);
        sums = _mm512_set1_epi32(128 * kQuantisedBlock / 16);
      } else {
        sums = quantise(block(b), _mm512_set1_ps(steps.inverse[b]), r);
      }
      _mm512_store_si512(partial.words[b], sums);
    }
    const __m256i sums =
        _mm256_sub_epi32(together<Added>(partial), _mm256_set1_epi32(128 * kQuantisedBlock));
    std::memcpy(to.step, steps.step, sizeof to.step);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.minus),
                        _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(sums, 7)));
  }
}

void copy_rows_avx512(const RowCopy& c) {
  c.dtype == DType::kBF16 ? copy_rows_of<BF16>(c) : copy_rows_of<float>(c);
}

}  // namespace

QuantisedRows avx512_quantised_rows() { return copy_rows_avx512; }

}  // namespace moraine::cpu

HWY_POP_ATTRIBUTES

#else

namespace moraine::cpu {
QuantisedRows avx512_quantised_rows() { return nullptr; }
}  // namespace moraine::cpu

#endif
