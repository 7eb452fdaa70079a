// AttentionTiles: number formats and exponentials that both directions of attention share.
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

// All of the full size.
class AttentionTiles : public cpu::AmxTiles {
 public:
  AttentionTiles() : AmxTiles(shapes()) {}

 private:
  static const cpu::TileShapes& shapes() {
    static const cpu::TileShapes all = [] {
      cpu::TileShapes t;
      for (int tile = 0; tile < 8; ++tile) t.set(tile, cpu::kAmxRows, cpu::kAmxWords);
      return t;
    }();
    return all;
  }
};

// The same on machines with AMX.
struct AmxDot : Bf16Dot {
  using Tiles = AttentionTiles;
  static constexpr bool kTiles = true;
};
#endif

static_assert(attention::kGroup == cpu::kAmxWords);  // operand_words
template <class F>
HWY_INLINE int64_t words(int64_t d) {
  return attention::operand_words(d, F::kPair, F::kTiles);
}

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
