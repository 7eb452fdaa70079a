// AttentionProducts: the small products of attention, with vectors or with AMX tiles.
//
// Compiled once per Highway target, as attention_tiles.h, in words as there.
//
// Order of tiles: dots of 16 steps (amx_tiles.h), ascending; a sum over positions is cut where positions are multiples
//                 of 32, wherever it begins: it starts with half a dot if its first group is odd (half_first), and ends
//                 with one if its last is even. A row's bits do not depend on the rows beside it.
#include "kernels/cpu/attention_lanes.h"

#include <cstring>
#include <utility>

#if defined(MORAINE_KERNELS_CPU_ATTENTION_PRODUCTS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MORAINE_KERNELS_CPU_ATTENTION_PRODUCTS_H_
#undef MORAINE_KERNELS_CPU_ATTENTION_PRODUCTS_H_
#else
#define MORAINE_KERNELS_CPU_ATTENTION_PRODUCTS_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {

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

template <int... kTile>
HWY_INLINE void add_half_dot(cpu::AmxTiles& tiles, const Product& p, const Word* a, const Word* b,
                             std::integer_sequence<int, kTile...>) {
  tiles.load<5>(a, 4 * p.a_row);
  ((tiles.load<7>(b + kTile * cpu::kAmxWords, 4 * p.b_step), tiles.dot<kTile, 5, 7>()), ...);
  tiles.zero<5>(), tiles.zero<7>();  // zeros take no register (linear_amx.h)
}

// Sixteen rows of as many tiles of sums side by side as kTile has.
template <bool kZero, int... kTile>
HWY_INLINE void multiply_sixteen(cpu::AmxTiles& tiles, const Product& p, int64_t i, int64_t j,
                                 std::integer_sequence<int, kTile...> all) {
  const Word *a = p.a + i * p.a_row, *b = p.b + j;
  float* c = p.c + i * p.c_row + j;
  if constexpr (kZero) {
    (tiles.zero<kTile>(), ...);
  } else {
    (tiles.load<kTile>(c + kTile * cpu::kAmxWords, 4 * p.c_row), ...);
  }
  int64_t s = 0;
  if (p.half_first) {
    add_half_dot(tiles, p, a, b, all);
    s = cpu::kAmxWords / 2;
  }
  for (; s + cpu::kAmxWords <= p.steps; s += cpu::kAmxWords) {
    tiles.load<4>(a + s, 4 * p.a_row);
    const Word* right = b + s * p.b_step;
    ((tiles.load<6>(right + kTile * cpu::kAmxWords, 4 * p.b_step), tiles.dot<kTile, 4, 6>()), ...);
  }
  if (s < p.steps) add_half_dot(tiles, p, a + s, b + s * p.b_step, all);
  (tiles.store<kTile>(c + kTile * cpu::kAmxWords, 4 * p.c_row), ...);
}

HWY_INLINE void scale_rows(const Product& p) {
  const DF df;
  for (int64_t i = 0; i < p.rows; ++i) {
    if (p.scale[i] == 1) continue;
    const VF scale = hn::Set(df, p.scale[i]);
    float* c = p.c + i * p.c_row;
    for (int64_t j = 0; j < p.columns; j += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(df, c + j), scale), df, c + j);
    }
  }
}

template <Start kStart>
HWY_NOINLINE void multiply_tiles(cpu::AmxTiles& tiles, const Product& p) {
  constexpr bool kZero = kStart == Start::kZero;
  if constexpr (kStart == Start::kScale) scale_rows(p);
  for (int64_t i = 0; i < p.rows; i += cpu::kAmxRows) {
    int64_t j = 0;
    for (; j + 4 * cpu::kAmxWords <= p.columns; j += 4 * cpu::kAmxWords) {
      multiply_sixteen<kZero>(tiles, p, i, j, std::make_integer_sequence<int, 4>());
    }
    for (; j < p.columns; j += cpu::kAmxWords) {
      multiply_sixteen<kZero>(tiles, p, i, j, std::make_integer_sequence<int, 1>());
    }
  }
}
#endif

template <class F, int kRow, int kStep, Start kStart>
HWY_INLINE void multiply([[maybe_unused]] typename F::Tiles& tiles, const Product& p) {
  if constexpr (F::kTiles) {
    multiply_tiles<kStart>(tiles, p);
  } else {
    multiply_lanes<F, kRow, kStep, kStart>(p);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
