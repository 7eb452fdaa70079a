// AttentionPacking: rows of q, k, v and gradients as operands of attention's products.
//
// Compiled once per Highway target, as attention_tiles.h, in words as there.
#include "kernels/cpu/attention_tiles.h"

#if defined(MORAINE_KERNELS_CPU_ATTENTION_PACKING_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MORAINE_KERNELS_CPU_ATTENTION_PACKING_H_
#undef MORAINE_KERNELS_CPU_ATTENTION_PACKING_H_
#else
#define MORAINE_KERNELS_CPU_ATTENTION_PACKING_H_
#endif

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {

HWY_INLINE float load_word(WideF32, const float* p, int64_t, int64_t) { return *p; }
HWY_INLINE float load_word(WideBf16, const BF16* p, int64_t, int64_t) { return to_float(*p); }
#if HWY_TARGET == HWY_AVX3
// The pair at p, whose first element is number c of d.
HWY_INLINE float load_word(Bf16Dot, const BF16* p, int64_t c, int64_t d) {
  const uint32_t low = c < d ? p[0].bits : 0, high = c + 1 < d ? p[1].bits : 0;
  const uint32_t both = low | high << 16;
  float word;
  std::memcpy(&word, &both, sizeof word);
  return word;
}
#endif

#if HWY_TARGET == HWY_SCALAR
template <class F, bool kAll>
HWY_INLINE int64_t pack_fours(const typename F::Element*, int64_t, int64_t, int64_t, Word*,
                              int64_t) {
  return 0;
}
#else
using D4 = hn::Simd<float, 4, 0>;

HWY_INLINE hn::Vec<D4> load_four(const float* p) { return hn::LoadU(D4(), p); }
HWY_INLINE hn::Vec<D4> load_four(const BF16* p) {  // pairs
  return hn::BitCast(
      D4(), hn::LoadU(hn::Repartition<uint16_t, D4>(), reinterpret_cast<const uint16_t*>(p)));
}

// Four words from each of rows i, i + 4, i + 8, ... (as many as lanes allow), one row per 128 bits.
template <class F, bool kAll>
HWY_INLINE VF load_rows(const typename F::Element* from, int64_t stride, int64_t i, int64_t rows) {
  const auto row = [&](int64_t r) {
    if (!kAll && r >= rows) return hn::Zero(D4());
    return load_four(from + r * stride);
  };
  if constexpr (kLanes == 4) {
    return row(i);
  } else if constexpr (kLanes == 8) {
    return hn::Combine(DF(), row(i + 4), row(i));
  } else {
    const hn::Half<DF> half;
    return hn::Combine(DF(), hn::Combine(half, row(i + 12), row(i + 8)),
                       hn::Combine(half, row(i + 4), row(i)));
  }
}

// What has been loaded as number s of a row: words of F or, widened, two.
template <class F>
HWY_INLINE void store_loaded(VF loaded, Word* to, int64_t to_step, int64_t s) {
  const DF df;
  if constexpr (F::kPair * sizeof(typename F::Element) == sizeof(Word)) {
    hn::StoreU(loaded, df, to + s * to_step);
  } else {
    const hn::RebindToUnsigned<DF> d32;
    const auto bits = hn::BitCast(d32, loaded);
    hn::StoreU(hn::BitCast(df, hn::ShiftLeft<16>(bits)), df, to + 2 * s * to_step);
    hn::StoreU(hn::BitCast(df, hn::And(bits, hn::Set(d32, 0xffff0000u))), df,
               to + (2 * s + 1) * to_step);
  }
}

// The part of pack_group_columns that comes in fours of 32 bits; returns how many words of a row.
template <class F, bool kAll>
HWY_INLINE int64_t pack_fours(const typename F::Element* from, int64_t stride, int64_t rows,
                              int64_t d, Word* to, int64_t to_step) {
  constexpr int64_t kLoaded = sizeof(Word) / sizeof(typename F::Element);  // elements of 32 bits
  const DF df;
  const hn::Repartition<double, DF> d64;
  const auto pair = [&](VF x, VF y, bool upper) {
    const auto x64 = hn::BitCast(d64, x), y64 = hn::BitCast(d64, y);
    return hn::BitCast(
        df, upper ? hn::InterleaveUpper(d64, x64, y64) : hn::InterleaveLower(d64, x64, y64));
  };
  const int64_t whole = d / (4 * kLoaded) * 4;
  for (int64_t s = 0; s < whole; s += 4) {
    HWY_UNROLL(4)
    for (int v = 0; v < kGroupVectors; ++v) {
      const typename F::Element* p = from + s * kLoaded;
      const int64_t i = v * kLanes;
      const VF a = load_rows<F, kAll>(p, stride, i, rows),
               b = load_rows<F, kAll>(p, stride, i + 1, rows),
               c = load_rows<F, kAll>(p, stride, i + 2, rows),
               e = load_rows<F, kAll>(p, stride, i + 3, rows);
      const VF ab = hn::InterleaveLower(df, a, b), ce = hn::InterleaveLower(df, c, e),
               ab2 = hn::InterleaveUpper(df, a, b), ce2 = hn::InterleaveUpper(df, c, e);
      store_loaded<F>(pair(ab, ce, false), to + i, to_step, s);
      store_loaded<F>(pair(ab, ce, true), to + i, to_step, s + 1);
      store_loaded<F>(pair(ab2, ce2, false), to + i, to_step, s + 2);
      store_loaded<F>(pair(ab2, ce2, true), to + i, to_step, s + 3);
    }
  }
  return whole * kLoaded / F::kPair;
}
#endif

template <class F, bool kAll>
HWY_INLINE void pack_group_columns(const typename F::Element* from, int64_t stride, int64_t rows,
                                   int64_t d, Word* to, int64_t to_step) {
  const int64_t whole = pack_fours<F, kAll>(from, stride, rows, d, to, to_step);
  for (int64_t s = whole; s < words<F>(d); ++s) {
    for (int64_t i = 0; i < attention::kGroup; ++i) {
      const typename F::Element* p = from + i * stride + s * F::kPair;
      to[s * to_step + i] = kAll || i < rows ? load_word(F(), p, s * F::kPair, d) : 0;
    }
  }
}

// to[s * to_step + i] = word s of row i, for a group of kGroup rows of which `rows` exist; the
// others are zero. The words of a row become the steps of a product, its rows the columns.
template <class F>
HWY_INLINE void pack_columns(const typename F::Element* from, int64_t stride, int64_t rows,
                             int64_t d, Word* to, int64_t to_step) {
  if (rows >= attention::kGroup) {
    pack_group_columns<F, true>(from, stride, rows, d, to, to_step);
  } else {
    pack_group_columns<F, false>(from, stride, rows, d, to, to_step);
  }
}

// Lanes [0, n) of p as bf16 bits (or f32), the others zero.
template <class F>
HWY_INLINE VF load_wide(DF df, const typename F::Element* p, int64_t n) {
  return n >= kLanes ? load(df, p) : n > 0 ? load_n(df, p, static_cast<size_t>(n)) : hn::Zero(df);
}

// to[c] = element c of the first row (low) and of the second, for as many whole vectors of both as there are in d;
// returns how many columns.
template <class F>
HWY_INLINE int64_t zip_rows([[maybe_unused]] const typename F::Element* first,
                            [[maybe_unused]] const typename F::Element* second,
                            [[maybe_unused]] int64_t d, [[maybe_unused]] Word* to,
                            [[maybe_unused]] int64_t to_group) {
  int64_t c = 0;
#if HWY_TARGET == HWY_AVX3
  for (; F::kPair == 2 && c + 2 * kLanes <= d; c += 2 * kLanes) {
    const __m512i a = _mm512_loadu_si512(first + c), b = _mm512_loadu_si512(second + c);
    // Of each 128 bits the lower four columns, and the upper four.
    const __m512i low = _mm512_unpacklo_epi16(a, b), high = _mm512_unpackhi_epi16(a, b);
    const __m512i begin = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                  end = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    Word* at = to + c / kLanes * to_group;
    _mm512_storeu_si512(at, _mm512_permutex2var_epi64(low, begin, high));
    _mm512_storeu_si512(at + to_group, _mm512_permutex2var_epi64(low, end, high));
  }
#endif
  return c;
}

// Word c of step s of a right operand = element c of row s, or of rows 2 s (low) and 2 s + 1 (high); zero beyond
// `rows`, and beyond d up to a whole group. `padded` rows are written, a multiple of kPair.
template <class F>
HWY_INLINE void pack_rows(const typename F::Element* from, int64_t stride, int64_t rows,
                          int64_t padded, int64_t d, Word* to,
                          const attention::RightLayout& layout) {
  const DF df;
  const int64_t width = attention::round_up(d, attention::kGroup);
  const hn::RebindToUnsigned<DF> d32;
  const int64_t group = F::kTiles ? layout.group : attention::kGroup;
  for (int64_t r = 0; r < padded; r += F::kPair, to += layout.step) {
    const typename F::Element* p = from + r * stride;
    int64_t c = zip_rows<F>(p, p + stride, r + 1 < rows ? d : 0, to, group);
    for (; c < width; c += kLanes) {
      VF word = load_wide<F>(df, p + c, r < rows ? d - c : 0);
      if constexpr (F::kPair == 2) {
        const VF second = load_wide<F>(df, p + stride + c, r + 1 < rows ? d - c : 0);
        const auto low = hn::ShiftRight<16>(hn::BitCast(d32, word));
        word = hn::BitCast(df, hn::Or(low, hn::BitCast(d32, second)));
      }
      hn::StoreU(word, df, to + c / attention::kGroup * group + c % attention::kGroup);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
