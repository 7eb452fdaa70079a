// AttentionProducts: the small products of attention, with vectors or with AMX tiles.
//
// With tiles every operand is cut into tiles of sixteen rows, a line each, that follow each other in memory: lines
// further apart meet in few sets of L1, which cost more than the dots.
//
//   left    word s of row i     at [i / 16] [s / 16] [i % 16] [s % 16]
//   right   word j of step s    at [j / 16] [s / 16] [s % 16] [j % 16]      right_layout
//   sums    column j of row i   at [i / 16] [j / 16] [i % 16] [j % 16]
//
// Compiled once per Highway target, as attention_tiles.h, in words as there.
//
// Order of tiles: dots of 16 steps (amx_tiles.h), ascending. A sum over positions is cut into dots from the first group
//                 that a panel sees of a block on (forward), or where positions are multiples of 32 (backward); what a
//                 dot has beyond the sum has zero weights. A row's bits do not depend on the rows beside it.
#include "kernels/cpu/attention_lanes.h"

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

constexpr int64_t kTileWords = cpu::kAmxRows * cpu::kAmxWords;

// Where scores of rows with kKeys keys lie, and what is made of them.
template <class F, int64_t kKeys>
struct ScoreLayout {
  static constexpr int64_t kGroup = attention::kGroup;
  // Of a group of rows, the score of row r with key c of group g lies at r * kScoreRow + g * kScoreGroup + c.
  static constexpr int64_t kScoreRow = F::kTiles ? kGroup : kKeys,
                           kScoreGroup = F::kTiles ? kTileWords : kGroup;

  // Where row r has its weights of group g, which are a left operand.
  static constexpr int64_t left_at(int64_t r, int64_t g) {
    constexpr int64_t kHalf = kGroup / 2;
    return F::kTiles ? r / kGroup * kGroup * (kKeys / F::kPair) + g / 2 * kTileWords +
                           r % kGroup * kGroup + g % 2 * kHalf
                     : (r * kKeys + g * kGroup) / F::kPair;
  }
};

// c(i, j) = start + sum_s a(i, s) * b(s, j). Extents in tiles, distances in words from a tile to the next one.
struct TileProduct {
  const Word* a;
  const Word* b;  // tiles along the sum follow each other
  float* c;
  int64_t a_row = cpu::kAmxWords, a_step = kTileWords;  // from row to row of a tile; along the sum
  int64_t a_rows, b_columns;
  int64_t c_rows, c_columns = kTileWords;
  int64_t rows, columns, dots;
};

#if HWY_TARGET == HWY_AVX3
// M x N tiles of sums from (i, j) on, in registers 0 to 3. Operands come by way of one register each, though one of
// five loads is then a second one: with all eight in use each instruction waits beside a busy thread (linear_amx.h).
template <Start kStart, int M, int N>
HWY_INLINE void multiply_block(cpu::AmxTiles& tiles, const TileProduct& p, int64_t i, int64_t j) {
  static_assert(kStart != Start::kScale);
  static_assert((M == 1 && N <= 4) || (M == 2 && N <= 2));
  constexpr int64_t kRowBytes = sizeof(Word) * cpu::kAmxWords;
  const Word *a = p.a + i * p.a_rows, *b = p.b + j * p.b_columns;
  float* c = p.c + i * p.c_rows + j * p.c_columns;
  const auto for_each = [&]<int... k>(std::integer_sequence<int, k...>, const auto& f) {
    (f.template operator()<k>(), ...);
  };
  const auto for_sums = [&](const auto& f) {
    for_each(std::make_integer_sequence<int, M * N>(), [&]<int k>() {
      f.template operator()<k>(c + k / N * p.c_rows + k % N * p.c_columns);
    });
  };
  for_sums([&]<int k>([[maybe_unused]] float* at) {
    if constexpr (kStart == Start::kZero) {
      tiles.zero<k>();
    } else {
      tiles.load<k>(at, kRowBytes);
    }
  });
  const int64_t a_bytes = static_cast<int64_t>(sizeof(Word)) * p.a_row;
  for (int64_t s = 0; s < p.dots; ++s, a += p.a_step, b += kTileWords) {
    tiles.load<4>(a, a_bytes);
    for_each(std::make_integer_sequence<int, N>(), [&]<int n>() {
      tiles.load<6>(b + n * p.b_columns, kRowBytes);
      tiles.dot<n, 4, 6>();
    });
    if constexpr (M == 2) {
      tiles.load<4>(a + p.a_rows, a_bytes);
      tiles.dot<2 * N - 1, 4, 6>();
      if constexpr (N == 2) {
        tiles.load<6>(b, kRowBytes);
        tiles.dot<2, 4, 6>();
      }
    }
  }
  for_sums([&]<int k>(float* at) { tiles.store<k>(at, kRowBytes); });
}

template <Start kStart>
HWY_NOINLINE void multiply_tiles(cpu::AmxTiles& tiles, const TileProduct& p) {
  int64_t i = 0;
  for (; i + 2 <= p.rows; i += 2) {
    int64_t j = 0;
    for (; j + 2 <= p.columns; j += 2) multiply_block<kStart, 2, 2>(tiles, p, i, j);
    if (j < p.columns) multiply_block<kStart, 2, 1>(tiles, p, i, j);
  }
  if (i == p.rows) return;
  int64_t j = 0;
  for (; j + 4 <= p.columns; j += 4) multiply_block<kStart, 1, 4>(tiles, p, i, j);
  for (; j < p.columns; ++j) multiply_block<kStart, 1, 1>(tiles, p, i, j);
}

// A row of d elements as row 0 of a left operand of `words`, zero beyond d.
HWY_INLINE void pack_left_row(const BF16* from, int64_t d, int64_t words, Word* to) {
  for (int64_t w = 0; w < words; w += cpu::kAmxWords) {
    const int64_t left = std::max<int64_t>(0, d - 2 * w);
    const __mmask32 mask = left >= 2 * cpu::kAmxWords ? ~0u : (1u << left) - 1;
    _mm512_storeu_si512(to + w * cpu::kAmxRows, _mm512_maskz_loadu_epi16(mask, from + 2 * w));
  }
}

// Sixteen rows of which `rows` exist, the others zero, as a left operand.
HWY_INLINE void pack_left(const BF16* from, int64_t stride, int64_t rows, int64_t d, Word* to) {
  const int64_t words = attention::operand_words(d, 2, true);
  for (int64_t i = 0; i < attention::kGroup; ++i) {
    pack_left_row(from + i * stride, i < rows ? d : 0, words, to + i * cpu::kAmxWords);
  }
}

// Columns of sixteen rows, of which `rows` exist, as rows of a left operand:
//
//   to[c / 16 * to_columns + c % 16 * 16 + s] = elements c of rows 2 s (low) and 2 s + 1 (high), c < width
//
// Zero beyond the rows and d. Eight columns at a time: three levels of interleaving transpose 8 x 8 elements.
HWY_INLINE void pack_left_columns(const BF16* from, int64_t stride, int64_t rows, int64_t d,
                                  Word* to, int64_t to_columns, int64_t width) {
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
    Word* eight = to + c / cpu::kAmxRows * to_columns + c % cpu::kAmxRows * cpu::kAmxWords;
    HWY_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      const __m256i even = _mm256_unpacklo_epi64(four[2 * i], four[2 * i + 1]),
                    odd = _mm256_unpackhi_epi64(four[2 * i], four[2 * i + 1]);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(eight + 2 * i * cpu::kAmxWords), even);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(eight + (2 * i + 1) * cpu::kAmxWords), odd);
    }
  }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
