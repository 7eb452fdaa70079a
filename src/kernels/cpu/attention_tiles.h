// AttentionTiles: number formats, packing and exponentials that both directions of attention share.
//
// Compiled once per Highway target, as simd.h. Everything is counted in words of 32 bits: one f32,
// or, where the machine multiplies pairs (Bf16Dot, AmxDot), two neighbours along the sum in bf16, the
// first one low.
#include "kernels/cpu/simd.h"

#if defined(MORAINE_KERNELS_CPU_ATTENTION_TILES_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MORAINE_KERNELS_CPU_ATTENTION_TILES_H_
#undef MORAINE_KERNELS_CPU_ATTENTION_TILES_H_
#else
#define MORAINE_KERNELS_CPU_ATTENTION_TILES_H_
#endif

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/attention_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {

constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));
static_assert(attention::kGroup % kLanes == 0);
constexpr int kGroupVectors = attention::kGroup / kLanes;

// Rows of a full tile: with two columns of vectors they take 16 of 32 registers, or 12 of 16.
constexpr int kTileRows = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON ? 8 : 6;

// What a task has to set up for its products.
struct NoTiles {};

// f32 tensors.
struct WideF32 {
  using Element = float;
  using Tiles = NoTiles;
  static constexpr bool kTiles = false;
  static constexpr int kPair = 1;
  static constexpr bool kRound = false;
  static HWY_INLINE VF step(VF sum, VF a, VF b) { return hn::MulAdd(a, b, sum); }
};

// bf16 tensors, widened on the way into panels; P and dS are rounded where the products read them.
struct WideBf16 {
  using Element = BF16;
  using Tiles = NoTiles;
  static constexpr bool kTiles = false;
  static constexpr int kPair = 1;
  static constexpr bool kRound = true;
  static HWY_INLINE VF step(VF sum, VF a, VF b) { return hn::MulAdd(a, b, sum); }
};

#if HWY_TARGET == HWY_AVX3
// bf16 tensors on machines with AVX512_BF16 (the caller asks isa()). The two instructions are
// written in assembly: Highway 1.0 has neither, and an intrinsic would need a second compilation of
// all callers under another target. vdpbf16ps treats denormal numbers as zero.
struct Bf16Dot {
  using Element = BF16;
  using Tiles = NoTiles;
  static constexpr bool kTiles = false;
  static constexpr int kPair = 2;
  static constexpr bool kRound = true;
  static HWY_INLINE VF step(VF sum, VF a, VF b) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(b.raw), "v"(a.raw));
    return sum;
  }
  static HWY_INLINE __m256i round(VF v) {
    __m256i half;
    asm("vcvtneps2bf16 %1, %0" : "=v"(half) : "v"(v.raw));
    return half;
  }
};

// Sums in tiles 0 to 3, the left operand in 4, the right one in 6; in 5 and 7 if only half a dot is
// left of the sum.
class AttentionTiles : public cpu::AmxTiles {
 public:
  AttentionTiles() : AmxTiles(shapes()) {}

 private:
  static const cpu::TileShapes& shapes() {
    static const cpu::TileShapes all = [] {
      cpu::TileShapes t;
      for (int tile = 0; tile < 7; ++tile) t.set(tile, cpu::kAmxRows, cpu::kAmxWords);
      return t.set(5, cpu::kAmxRows, cpu::kAmxWords / 2).set(7, cpu::kAmxWords / 2, cpu::kAmxWords);
    }();
    return all;
  }
};

// The same on machines with AMX. Left operands have their words side by side in rows.
struct AmxDot : Bf16Dot {
  using Tiles = AttentionTiles;
  static constexpr bool kTiles = true;
};
#endif

// Words of a row, with tiles up to a multiple of half a dot.
template <class F>
HWY_INLINE int64_t words(int64_t d) {
  return F::kTiles ? attention::round_up(d, cpu::kAmxWords) / F::kPair
                   : (d + F::kPair - 1) / F::kPair;
}

// ------------------------------------------------------------------------------------- exponential

// 2^f for 0 <= |f| <= 1/2, and 1 for 0; minimax, relative error 2^-25 before rounding.
HWY_INLINE VF exp2_fraction(DF df, VF f) {
  VF p = hn::Set(df, 0x1.41fbbap-13f);
  p = hn::MulAdd(p, f, hn::Set(df, 0x1.5f3e54p-10f));
  p = hn::MulAdd(p, f, hn::Set(df, 0x1.3b2d4cp-7f));
  p = hn::MulAdd(p, f, hn::Set(df, 0x1.c6aee8p-5f));
  p = hn::MulAdd(p, f, hn::Set(df, 0x1.ebfbdcp-3f));
  p = hn::MulAdd(p, f, hn::Set(df, 0x1.62e430p-1f));
  return hn::MulAdd(p, f, hn::Set(df, 1.0f));
}

// 2^x for x <= 1, lane by lane: 1 ulp, zero below 2^-125 (without AVX-512; with it, denormal), 1
// for 0.
HWY_INLINE VF exp2_f(DF df, VF x) {
#if HWY_TARGET == HWY_AVX3
  // Rounded as the nearest integer: x - f. scalef multiplies by 2^floor(.), also where that is 0.
  const VF whole{_mm512_roundscale_ps(x.raw, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  const VF f{_mm512_reduce_ps(x.raw, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  return VF{_mm512_scalef_ps(exp2_fraction(df, f).raw, whole.raw)};
#else
  const hn::RebindToSigned<DF> di;
  const VF magic = hn::Set(df, 0x1.8p23f);  // adding it rounds to an integer, found in the low bits
  const VF shifted = hn::Add(x, magic);
  const VF p = exp2_fraction(df, hn::Sub(x, hn::Sub(shifted, magic)));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
  const VF power = hn::BitCast(df, hn::Add(hn::BitCast(di, p), exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(df, -125.0f)), power);
#endif
}

// Nearest bf16, ties to even, as f32; v is finite or NaN.
HWY_INLINE VF round_bf16(VF v) {
  const hn::RebindToUnsigned<DF> d32;
  const auto bits = hn::BitCast(d32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
  const auto sum = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fff)));
  const VF rounded = hn::BitCast(DF(), hn::And(sum, hn::Set(d32, 0xffff0000u)));
  return hn::IfThenElse(hn::Eq(v, v), rounded, v);
}

// Lanes of a group of keys (vector v of it) that lie in [lo, hi], counted from the group's first
// key.
HWY_INLINE hn::Mask<DF> visible(DF df, int v, int64_t lo, int64_t hi) {
  const auto below = [&](int64_t n) {
    n -= v * kLanes;
    return hn::FirstN(df, static_cast<size_t>(n < 0 ? 0 : n > kLanes ? kLanes : n));
  };
  return hn::AndNot(below(lo), below(hi + 1));
}

// ----------------------------------------------------------------------------------------- packing

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

HWY_INLINE hn::Vec<D4> load_four(WideF32, const float* p) { return hn::LoadU(D4(), p); }
HWY_INLINE hn::Vec<D4> load_four(WideBf16, const BF16* p) {
  const hn::Rebind<uint16_t, D4> d16;
  const hn::RebindToUnsigned<D4> d32;
  const auto half = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(D4(), hn::ShiftLeft<16>(hn::PromoteTo(d32, half)));
}
#if HWY_TARGET == HWY_AVX3
HWY_INLINE hn::Vec<D4> load_four(Bf16Dot, const BF16* p) {
  return hn::BitCast(
      D4(), hn::LoadU(hn::Repartition<uint16_t, D4>(), reinterpret_cast<const uint16_t*>(p)));
}
#endif

// Four words from each of rows i, i + 4, i + 8, ... (as many as lanes allow), one row per 128 bits.
template <class F, bool kAll>
HWY_INLINE VF load_rows(const typename F::Element* from, int64_t stride, int64_t i, int64_t rows) {
  const auto row = [&](int64_t r) {
    if (!kAll && r >= rows) return hn::Zero(D4());
    return load_four(F(), from + r * stride);
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

// The part of pack_group_columns that comes in fours; returns how many words of a row.
template <class F, bool kAll>
HWY_INLINE int64_t pack_fours(const typename F::Element* from, int64_t stride, int64_t rows,
                              int64_t d, Word* to, int64_t to_step) {
  const DF df;
  const hn::Repartition<double, DF> d64;
  const auto pair = [&](VF x, VF y, bool upper) {
    const auto x64 = hn::BitCast(d64, x), y64 = hn::BitCast(d64, y);
    return hn::BitCast(
        df, upper ? hn::InterleaveUpper(d64, x64, y64) : hn::InterleaveLower(d64, x64, y64));
  };
  const int64_t whole = d / (4 * F::kPair) * 4;  // words in fours
  for (int64_t s = 0; s < whole; s += 4) {
    HWY_UNROLL(4)
    for (int v = 0; v < kGroupVectors; ++v) {
      const typename F::Element* p = from + s * F::kPair;
      const int64_t i = v * kLanes;
      const VF a = load_rows<F, kAll>(p, stride, i, rows),
               b = load_rows<F, kAll>(p, stride, i + 1, rows),
               c = load_rows<F, kAll>(p, stride, i + 2, rows),
               e = load_rows<F, kAll>(p, stride, i + 3, rows);
      const VF ab = hn::InterleaveLower(df, a, b), ce = hn::InterleaveLower(df, c, e),
               ab2 = hn::InterleaveUpper(df, a, b), ce2 = hn::InterleaveUpper(df, c, e);
      Word* out = to + s * to_step + i;
      hn::StoreU(pair(ab, ce, false), df, out);
      hn::StoreU(pair(ab, ce, true), df, out + to_step);
      hn::StoreU(pair(ab2, ce2, false), df, out + 2 * to_step);
      hn::StoreU(pair(ab2, ce2, true), df, out + 3 * to_step);
    }
  }
  return whole;
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
                            [[maybe_unused]] int64_t d, [[maybe_unused]] Word* to) {
  int64_t c = 0;
#if HWY_TARGET == HWY_AVX3
  for (; F::kPair == 2 && c + 2 * kLanes <= d; c += 2 * kLanes) {
    const __m512i a = _mm512_loadu_si512(first + c), b = _mm512_loadu_si512(second + c);
    // Of each 128 bits the lower four columns, and the upper four.
    const __m512i low = _mm512_unpacklo_epi16(a, b), high = _mm512_unpackhi_epi16(a, b);
    const __m512i begin = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                  end = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    _mm512_storeu_si512(to + c, _mm512_permutex2var_epi64(low, begin, high));
    _mm512_storeu_si512(to + c + kLanes, _mm512_permutex2var_epi64(low, end, high));
  }
#endif
  return c;
}

// to[s * width + c] = element c of row s, or of rows 2 s (low) and 2 s + 1 (high); zero beyond
// `rows` and d. Rows become the steps of a product. `padded` rows are written, a multiple of kPair.
template <class F>
HWY_INLINE void pack_rows(const typename F::Element* from, int64_t stride, int64_t rows,
                          int64_t padded, int64_t d, Word* to, int64_t width) {
  const DF df;
  const hn::RebindToUnsigned<DF> d32;
  for (int64_t r = 0; r < padded; r += F::kPair, to += width) {
    const typename F::Element* p = from + r * stride;
    int64_t c = zip_rows<F>(p, p + stride, r + 1 < rows ? d : 0, to);
    for (; c < width; c += kLanes) {
      VF word = load_wide<F>(df, p + c, r < rows ? d - c : 0);
      if constexpr (F::kPair == 2) {
        const VF second = load_wide<F>(df, p + stride + c, r + 1 < rows ? d - c : 0);
        const auto low = hn::ShiftRight<16>(hn::BitCast(d32, word));
        word = hn::BitCast(df, hn::Or(low, hn::BitCast(d32, second)));
      }
      hn::StoreU(word, df, to + c);
    }
  }
}

#if HWY_TARGET == HWY_AVX3
// to[i * words + s] = word s of row i, for kGroup rows of which `rows` exist: a left operand of
// multiply_tiles. The others are zero, and so is what is beyond d.
HWY_INLINE void pack_left(const BF16* from, int64_t stride, int64_t rows, int64_t d, Word* to,
                          int64_t words) {
  for (int64_t i = 0; i < attention::kGroup; ++i) {
    auto* row = reinterpret_cast<BF16*>(to + i * words);
    const int64_t count = i < rows ? d : 0;
    std::memcpy(row, from + i * stride, static_cast<size_t>(count) * sizeof(BF16));
    std::memset(row + count, 0, static_cast<size_t>(2 * words - count) * sizeof(BF16));
  }
}

// to[c * to_row + s] = elements c of rows 2 s (low) and 2 s + 1 (high), for kGroup rows of which
// `rows` exist and c < width; zero beyond them and d. Columns become rows of a left operand, rows its
// steps. Eight columns at a time: three levels of interleaving transpose 8 x 8 elements.
HWY_INLINE void pack_left_columns(const BF16* from, int64_t stride, int64_t rows, int64_t d,
                                  Word* to, int64_t to_row, int64_t width) {
  const auto load = [&](int64_t i, int64_t c) {
    const auto mask =
        static_cast<__mmask8>(i < rows && c < d ? (d - c >= 8 ? 0xff : (1 << (d - c)) - 1) : 0);
    return _mm_maskz_loadu_epi16(mask, from + i * stride + c);
  };
  for (int64_t c = 0; c < width; c += 8) {
    __m256i row[8], pair[8], four[8];
    HWY_UNROLL(8)
    for (int i = 0; i < 8; ++i) row[i] = _mm256_set_m128i(load(i + 8, c), load(i, c));
    HWY_UNROLL(4)
    for (int i = 0; i < 4; ++i) {  // pair[i]: columns 0 to 3 of two rows; pair[i + 4]: 4 to 7
      pair[i] = _mm256_unpacklo_epi16(row[2 * i], row[2 * i + 1]);
      pair[i + 4] = _mm256_unpackhi_epi16(row[2 * i], row[2 * i + 1]);
    }
    HWY_UNROLL(2)
    for (int i = 0; i < 2; ++i) {  // four[i + 2 c]: columns 2 c, 2 c + 1 of four rows
      four[i] = _mm256_unpacklo_epi32(pair[2 * i], pair[2 * i + 1]);
      four[i + 2] = _mm256_unpackhi_epi32(pair[2 * i], pair[2 * i + 1]);
      four[i + 4] = _mm256_unpacklo_epi32(pair[2 * i + 4], pair[2 * i + 5]);
      four[i + 6] = _mm256_unpackhi_epi32(pair[2 * i + 4], pair[2 * i + 5]);
    }
    HWY_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      const __m256i even = _mm256_unpacklo_epi64(four[2 * i], four[2 * i + 1]),
                    odd = _mm256_unpackhi_epi64(four[2 * i], four[2 * i + 1]);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (c + 2 * i) * to_row), even);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (c + 2 * i + 1) * to_row), odd);
    }
  }
}
#endif

// kLanes weights, neighbours along the sum, as the left factor of a product.
HWY_INLINE void store_left(WideF32, VF v, Word* to) { hn::StoreU(v, DF(), to); }
HWY_INLINE void store_left(WideBf16, VF v, Word* to) { hn::StoreU(round_bf16(v), DF(), to); }
#if HWY_TARGET == HWY_AVX3
HWY_INLINE void store_left(Bf16Dot, VF v, Word* to) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), Bf16Dot::round(v));
}
#endif

// kLanes columns of kPair rows, neighbours along the sum, as the left factor of a product with
// kRow 1.
HWY_INLINE void store_pairs(WideF32, const VF* v, Word* to) { hn::StoreU(v[0], DF(), to); }
HWY_INLINE void store_pairs(WideBf16, const VF* v, Word* to) {
  hn::StoreU(round_bf16(v[0]), DF(), to);
}
#if HWY_TARGET == HWY_AVX3
HWY_INLINE void store_pairs(Bf16Dot, const VF* v, Word* to) {
  alignas(64) static constexpr uint16_t kZip[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                    37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                    11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i zipped = _mm512_permutex2var_epi16(_mm512_castsi256_si512(Bf16Dot::round(v[0])),
                                                   _mm512_load_si512(kZip),
                                                   _mm512_castsi256_si512(Bf16Dot::round(v[1])));
  _mm512_storeu_si512(to, zipped);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
