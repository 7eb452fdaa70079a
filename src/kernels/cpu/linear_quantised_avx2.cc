// Tiles of quantised products with AVX2, which multiplies unsigned bytes by signed ones into sums of 16 bits.
//
// Weights of few bits are unpacked once for all rows of a tile. How long a sum may stay in 16 bits, where an addition
// costs least, depends on them:
//   q4   a whole run: 32 products of at most 8 * 127 are 32512. They come as (q + 8) * r and wrap around on the way;
//        a sum that begins with -8 * sum r ends with what it would be.
//   q6   two groups of four inputs: 4 products of at most 63 * 127 are 32004
//   q8   two products of 127 * 127, row by row: with more rows at a time, multiplied in 16 bits, it was slower (Zen 3)
#include "kernels/cpu/linear_quantised.h"

#if defined(__x86_64__)

#include <hwy/highway.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <utility>

HWY_PUSH_ATTRIBUTES("avx2,fma,bmi,bmi2")

namespace moraine::cpu {
namespace avx2 {
namespace {

constexpr int64_t kFours = kQuantisedRun / 4;  // groups of four inputs of a run
constexpr int kVectors = kPackPanel / 8;       // of a panel: 8 columns, four inputs of each
constexpr int kTogether = 2;                   // vectors of a tile in registers
constexpr int kRows = 4;                       // and rows
constexpr int64_t kFewRows = 2;                // for which unpacking does not pay
// Panels from memory in turn. Up to three rows may take less time than memory, which gives eight streams most (Zen 3);
// more rows wait for arithmetic, and were up to 1.5 times as fast with two (a Zen 4 as AVX2).
constexpr int64_t panels_for(int64_t rows) { return rows <= 3 ? AskPanels::kPanels : 2; }

HWY_INLINE __m256i load_bytes(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

// Four inputs of a row, in every lane.
HWY_INLINE __m256i word(const int8_t* from) {
  int32_t both;
  std::memcpy(&both, from, sizeof both);
  return _mm256_set1_epi32(both);
}

HWY_INLINE __m256i low_halves(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
HWY_INLINE __m256i high_halves(__m256i v) { return low_halves(_mm256_srli_epi16(v, 4)); }
HWY_INLINE __m256i with_two_bits(__m256i low, __m256i high) {  // bits 4 and 5 of `high`
  return _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(0x30)));
}

// sum += v, in lanes of 16 and 32 bits. Said as instructions: gcc 12 would else multiply for all rows before it adds,
// has no register left for one of the sums then, and each step waits for that one's way through memory.
HWY_INLINE void add16(__m256i& sum, __m256i v) { asm("vpaddw %1, %0, %0" : "+x"(sum) : "x"(v)); }
HWY_INLINE void add32(__m256i& sum, __m256i v) { asm("vpaddd %1, %0, %0" : "+x"(sum) : "x"(v)); }

// A pass over a run of q4 or q6 reads each byte once: pass g has, a byte for each weight as it is stored, vector v of
// the fours g, g + kPasses, g + 2 kPasses, ...
template <int kBits>
struct Pass {
  static constexpr int kParts = kBits == 4 ? 2 : 4;
  static constexpr int64_t kPasses = kFours / kParts;
  __m256i part[kParts];
};

template <int kBits>
HWY_INLINE Pass<kBits> stored_integers(const uint8_t* w, int64_t g, int v) {
  const auto at = [&](int64_t row) HWY_ATTR { return load_bytes(w + row * kRowBytes + 32 * v); };
  const __m256i first = at(row_of_four<kBits>(g));
  if constexpr (kBits == 4) {
    return {{low_halves(first), high_halves(first)}};
  } else {
    const __m256i second = at(row_of_four<6>(g + 4)), high = at(row_of_high_bits(g));
    return {{with_two_bits(low_halves(first), _mm256_slli_epi16(high, 4)),
             with_two_bits(low_halves(second), _mm256_slli_epi16(high, 2)),
             with_two_bits(high_halves(first), high),
             with_two_bits(high_halves(second), _mm256_srli_epi16(high, 2))}};
  }
}

// y + integers * (step * scale), of eight columns.
HWY_INLINE __m256 add_scaled(__m256 y, __m256i integers, float step, const uint8_t* scales) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales));
  const __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
  const __m256 both = _mm256_mul_ps(_mm256_set1_ps(step), _mm256_castsi256_ps(wide));
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(integers), both, y);
}

// -8 times the sums of r over inputs 4 g and 4 g + 1 of all g, and over 4 g + 2 and 4 g + 3: as vpmaddubsw sums them.
HWY_INLINE int32_t start_of(const int8_t* r) {
  const __m256i one = _mm256_set1_epi8(1);
  const __m256i all =
      _mm256_add_epi16(_mm256_maddubs_epi16(one, load_bytes(r)),
                       _mm256_maddubs_epi16(one, load_bytes(r + kQuantisedRun / 2)));
  __m128i sum = _mm_add_epi16(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  sum = _mm_add_epi16(sum, _mm_shuffle_epi32(sum, 0x4e));
  sum = _mm_add_epi16(sum, _mm_shuffle_epi32(sum, 0xb1));
  return _mm_cvtsi128_si32(_mm_slli_epi16(_mm_sub_epi16(_mm_setzero_si128(), sum), 3));
}

// start_of each run of each row: q4.
using Starts = int32_t[kQuantisedRows][kQuantisedSum / kQuantisedRun];

template <int kBits>
HWY_INLINE void fill_starts(const Tile& t, Starts& starts) {
  const auto* rows = static_cast<const QuantisedRow*>(t.a);
  for (int64_t i = 0; kBits == 4 && i < t.rows; ++i)
    for (int64_t run = 0; run < t.steps * kRuns; ++run)
      starts[i][run] = start_of(rows[i].r + run * kQuantisedRun);
}

// A block of a panel as it is stored, a byte for each weight.
template <int kBits>
struct Unpacked {
  __m256i at[kRuns][kFours][kVectors];

  HWY_INLINE void fill(const uint8_t* w) {
    for (int64_t run = 0; run < kRuns; ++run) fill_run(w + run * kRunBytes<kBits>, at[run]);
  }

 private:
  HWY_INLINE void fill_run(const uint8_t* w, __m256i (&to)[kFours][kVectors]) {
    using P = Pass<kBits>;
    for (int64_t g = 0; g < P::kPasses; ++g) {
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        const P pass = stored_integers<kBits>(w, g, v);
        for (int i = 0; i < P::kParts; ++i) to[g + i * P::kPasses][v] = pass.part[i];
      }
    }
  }
};

// Rows [row, row + M) of a tile, block b of the sum.
struct Place {
  const QuantisedRow* rows;
  const Starts& starts;
  int64_t row, b;

  const int8_t* r(int i, int64_t run, int64_t g) const {
    return rows[row + i].r + b * kQuantisedBlock + run * kQuantisedRun + 4 * g;
  }
  int32_t start(int i, int64_t run) const { return starts[row + i][b * kRuns + run]; }
  int32_t minus(int i) const { return rows[row + i].minus[b]; }
};

HWY_INLINE __m256i pairs_added(__m256i v) { return _mm256_madd_epi16(v, _mm256_set1_epi16(1)); }

template <int M>
using BlockSums = __m256i[M][kTogether];

// sums[i][v] += r * q over a run, of vectors [v0, v0 + kTogether).
template <int M>
HWY_INLINE void add_run(const Unpacked<4>& w, const Place& p, int64_t run, int v0,
                        BlockSums<M>& sums) {
  BlockSums<M> of_run;  // in lanes of 16 bits
  for (int i = 0; i < M; ++i)
    for (__m256i& s : of_run[i]) s = _mm256_set1_epi32(p.start(i, run));
  HWY_UNROLL(4)
  for (int64_t g = 0; g < kFours; ++g) {
    HWY_UNROLL(4)
    for (int i = 0; i < M; ++i) {
      const __m256i x = word(p.r(i, run, g));
      HWY_UNROLL(2)
      for (int v = 0; v < kTogether; ++v)
        add16(of_run[i][v], _mm256_maddubs_epi16(w.at[run][g][v0 + v], x));
    }
  }
  for (int i = 0; i < M; ++i)
    for (int v = 0; v < kTogether; ++v)
      sums[i][v] = _mm256_add_epi32(sums[i][v], pairs_added(of_run[i][v]));
}

template <int M>
HWY_INLINE void add_run(const Unpacked<6>& w, const Place& p, int64_t run, int v0,
                        BlockSums<M>& sums) {
  HWY_UNROLL(2)
  for (int64_t g = 0; g < kFours; g += 2) {
    HWY_UNROLL(4)
    for (int i = 0; i < M; ++i) {
      const __m256i x = word(p.r(i, run, g)), next = word(p.r(i, run, g + 1));
      HWY_UNROLL(2)
      for (int v = 0; v < kTogether; ++v) {
        const __m256i pairs =
            _mm256_add_epi16(_mm256_maddubs_epi16(w.at[run][g][v0 + v], x),
                             _mm256_maddubs_epi16(w.at[run][g + 1][v0 + v], next));
        add32(sums[i][v], pairs_added(pairs));
      }
    }
  }
}

// What a block's sums begin with: of q4 each run has its own start.
template <int kBits>
HWY_INLINE __m256i block_start(const Place& p, int i) {
  return _mm256_set1_epi32(kBits == 6 ? offset_sum<6>(p.minus(i)) : 0);
}

template <int kBits, int M>
void tile_rows(const Tile& t, const Unpacked<kBits>& w, const Place p, const uint8_t* scales,
               float* c) {
  const bool add = p.b > 0 || t.add;
  const int64_t stride = t.c_stride;
  for (int v0 = 0; v0 < kVectors; v0 += kTogether) {
    BlockSums<M> sums;
    for (int i = 0; i < M; ++i)
      for (__m256i& s : sums[i]) s = block_start<kBits>(p, i);
    for (int64_t run = 0; run < kRuns; ++run) add_run<M>(w, p, run, v0, sums);
    for (int i = 0; i < M; ++i) {
      for (int v = 0; v < kTogether; ++v) {
        float* to = c + i * stride + 8 * (v0 + v);
        const __m256 before = add ? _mm256_loadu_ps(to) : _mm256_setzero_ps();
        _mm256_storeu_ps(to, add_scaled(before, sums[i][v], p.rows[p.row + i].step[p.b],
                                        scales + 16 * (v0 + v)));
      }
    }
  }
}

template <int kBits, int... M>
auto tile_for(int64_t rows, std::integer_sequence<int, M...>) {
  static constexpr void (*kTiles[])(const Tile&, const Unpacked<kBits>&, Place, const uint8_t*,
                                    float*) = {tile_rows<kBits, M + 1>...};
  return kTiles[rows - 1];
}

// Calls f(panel, b, its bytes) for every block of every panel. Of panels from memory a block of each of some is taken
// in turn, and the next block of these, or the first one of those behind them, asked for.
template <int kBits, class Visit>
HWY_INLINE void for_blocks(const Tile& t, const Visit& f) {
  const int64_t at_once = t.far ? panels_for(t.rows) : 1;
  const auto block_at = [&](int64_t panel, int64_t b) HWY_ATTR {
    return static_cast<const uint8_t*>(t.b) + panel * t.b_stride + b * kBlockBytes<kBits>;
  };
  for (int64_t panel0 = 0; panel0 < t.panels; panel0 += at_once) {
    const int64_t panel1 = std::min(panel0 + at_once, t.panels), panels = panel1 - panel0;
    for (int64_t b = 0; b < t.steps; ++b) {
      const bool last = b + 1 == t.steps;
      const int64_t next0 = last ? panel1 : panel0;
      const AskPanels next(block_at(next0, last ? 0 : b + 1), t.b_stride,
                           std::min(next0 + at_once, t.panels) - next0, kBlockBytes<kBits>);
      for (int64_t p = 0; p < panels; ++p) {
        next.share(p, t.far ? panels : 0);
        f(panel0 + p, b, block_at(panel0 + p, b));
      }
    }
  }
}

template <int kBits>
void many_rows(const Tile& t) {
  constexpr auto kAll = std::make_integer_sequence<int, kRows>();
  const int64_t parts = (t.rows + kRows - 1) / kRows;
  const auto* rows = static_cast<const QuantisedRow*>(t.a);
  Starts starts;
  fill_starts<kBits>(t, starts);
  Unpacked<kBits> unpacked;
  for_blocks<kBits>(t, [&](int64_t panel, int64_t b, const uint8_t* w) HWY_ATTR {
    unpacked.fill(w);
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t row = even_begin(t.rows, parts, part),
                    here = even_begin(t.rows, parts, part + 1) - row;
      tile_for<kBits>(here, kAll)(t, unpacked, {rows, starts, row, b}, scales_of<kBits>(w),
                                  t.c + row * t.c_stride + panel * kPanel);
    }
  });
}

// sums += r * q over a run, of one row and all columns of a panel.
using RowSums = __m256i[kVectors];

template <int kBits>
HWY_INLINE void add_row(const uint8_t* w, const Place& p, int64_t run, RowSums& sums);

template <>
HWY_INLINE void add_row<4>(const uint8_t* w, const Place& p, int64_t run, RowSums& sums) {
  RowSums of_run;  // in lanes of 16 bits
  for (__m256i& s : of_run) s = _mm256_set1_epi32(p.start(0, run));
  for (int64_t g = 0; g < Pass<4>::kPasses; ++g) {
    const __m256i x = word(p.r(0, run, g)), later = word(p.r(0, run, g + 8));
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      const Pass<4> q = stored_integers<4>(w, g, v);
      of_run[v] = _mm256_add_epi16(of_run[v], _mm256_maddubs_epi16(q.part[0], x));
      of_run[v] = _mm256_add_epi16(of_run[v], _mm256_maddubs_epi16(q.part[1], later));
    }
  }
  for (int v = 0; v < kVectors; ++v) sums[v] = _mm256_add_epi32(sums[v], pairs_added(of_run[v]));
}

template <>
HWY_INLINE void add_row<6>(const uint8_t* w, const Place& p, int64_t run, RowSums& sums) {
  for (int64_t g = 0; g < Pass<6>::kPasses; ++g) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      const Pass<6> q = stored_integers<6>(w, g, v);
      HWY_UNROLL(2)
      for (int i = 0; i < 4; i += 2) {
        const __m256i pairs =
            _mm256_add_epi16(_mm256_maddubs_epi16(q.part[i], word(p.r(0, run, g + 4 * i))),
                             _mm256_maddubs_epi16(q.part[i + 1], word(p.r(0, run, g + 4 * i + 4))));
        sums[v] = _mm256_add_epi32(sums[v], pairs_added(pairs));
      }
    }
  }
}

template <>
HWY_INLINE void add_row<8>(const uint8_t* w, const Place& p, int64_t run, RowSums& sums) {
  for (int64_t g = 0; g < kFours; ++g) {
    const __m256i x = word(p.r(0, run, g)), size = _mm256_abs_epi8(x);
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      const __m256i q =
          _mm256_xor_si256(load_bytes(w + g * kRowBytes + 32 * v), _mm256_set1_epi8(-128));
      const __m256i pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(q, x));
      sums[v] = _mm256_add_epi32(sums[v], pairs_added(pairs));
    }
  }
}

template <int kBits>
void row_by_row(const Tile& t) {
  const auto* rows = static_cast<const QuantisedRow*>(t.a);
  Starts starts;
  fill_starts<kBits>(t, starts);
  for_blocks<kBits>(t, [&](int64_t panel, int64_t b, const uint8_t* w) HWY_ATTR {
    for (int64_t i = 0; i < t.rows; ++i) {
      RowSums sums;
      const Place place{rows, starts, i, b};
      for (__m256i& s : sums) s = block_start<kBits>(place, 0);
      for (int64_t run = 0; run < kRuns; ++run)
        add_row<kBits>(w + run * kRunBytes<kBits>, place, run, sums);
      float* c = t.c + i * t.c_stride + panel * kPanel;
      for (int v = 0; v < kVectors; ++v) {
        const __m256 before = b > 0 || t.add ? _mm256_loadu_ps(c + 8 * v) : _mm256_setzero_ps();
        _mm256_storeu_ps(
            c + 8 * v, add_scaled(before, sums[v], rows[i].step[b], scales_of<kBits>(w) + 16 * v));
      }
    }
  });
}

template <int kBits>
void tile(const Tile& t) {
  if constexpr (kBits == 8) {
    row_by_row<kBits>(t);
  } else {
    t.rows <= kFewRows ? row_by_row<kBits>(t) : many_rows<kBits>(t);
  }
}

}  // namespace
}  // namespace avx2

QuantisedTiles avx2_tiles() { return {avx2::tile<8>, avx2::tile<6>, avx2::tile<4>}; }

}  // namespace moraine::cpu

HWY_POP_ATTRIBUTES

#else

namespace moraine::cpu {
QuantisedTiles avx2_tiles() { return {}; }
}  // namespace moraine::cpu

#endif
