// Tiles of quantised products with vpdpbusd: four products of a byte each a lane, up to six rows at a time.
#include "kernels/cpu/linear_quantised.h"
#include "kernels/cpu/linear_quantised_lanes.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>
#include <utility>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,avx2,bmi,bmi2")

namespace moraine::cpu {
namespace {

constexpr int kRows = 6;  // 12 sums of integers, 12 of floats, weights, scales: 30 of 32 registers
constexpr int kVectors = 2;

// Panels at once, each a stream of its own: few rows wait for memory, which gives one stream 85 to 95 % of what it
// gives four (Zen 4, a file's pages). More rows would have no registers for their sums.
constexpr int panels_for(int rows) { return rows == 1 ? 4 : rows <= 4 ? 2 : 1; }

// Four inputs of a row, in every lane.
HWY_INLINE __m512i four(const int8_t* r) {
  int32_t word;
  std::memcpy(&word, r, sizeof word);
  return _mm512_set1_epi32(word);
}

struct Part {
  int64_t row, rows, panel;
};

// Over a run, a row of 128 bytes at a time; of q6 two of low bits and one of high ones.
constexpr int64_t passes_for(int bits) { return bits == 8 ? 16 : bits == 6 ? 4 : 8; }

// M rows x P panels.
template <int kBits, int M, int P>
HWY_INLINE void tile_rows(const Tile& t, const Part& part, AskAhead& next) {
  constexpr int64_t kScales = kBlockBytes<kBits> - 2 * kPackPanel;
  constexpr int V = kVectors * P;
  constexpr int64_t kRow = sizeof(QuantisedRow);
  const QuantisedRow* rows = static_cast<const QuantisedRow*>(t.a) + part.row;
  const uint8_t* w = static_cast<const uint8_t*>(t.b) + part.panel * t.b_stride;
  float* c = t.c + part.row * t.c_stride + part.panel * kPanel;
  __m512 y[M][V];
  HWY_UNROLL(6)
  for (int i = 0; i < M; ++i) {
    HWY_UNROLL(8)
    for (int v = 0; v < V; ++v)
      y[i][v] = t.add ? _mm512_loadu_ps(c + i * t.c_stride + 16 * v) : _mm512_setzero_ps();
  }
  for (int64_t b = 0; b < t.steps; ++b, w += kBlockBytes<kBits>) {
    next.step();
    __m512i sums[M][V];
    HWY_UNROLL(6)
    for (int i = 0; i < M; ++i) {
      HWY_UNROLL(8)
      for (int v = 0; v < V; ++v) sums[i][v] = offset_sums<kBits>(rows[i].minus[b]);
    }
    const uint8_t* run = w;
    const int8_t* r = rows->r + b * kQuantisedBlock;  // of the first row and a run
    const auto add = [&](__m512i q, int v, int64_t g) HWY_ATTR {
      HWY_UNROLL(6)
      for (int i = 0; i < M; ++i) {
        const __m512i x = four(r + i * kRow + 4 * g);
        sums[i][v] = _mm512_dpbusd_epi32(sums[i][v], q, x);
      }
    };
    const auto at = [&](int v, int64_t row) HWY_ATTR {
      return _mm512_loadu_si512(run + v / 2 * t.b_stride + kRowBytes * row + v % 2 * 64);
    };
    const auto add_halves = [&](Halves h, int v, int64_t g) HWY_ATTR {
      add(h.low, v, g);
      add(h.high, v, g + 8);
    };
    const auto add_weights = [&](int v, int64_t g) HWY_ATTR {
      if constexpr (kBits == 8) add(at(v, g), v, g);
      if constexpr (kBits == 4) add_halves(halves(at(v, g)), v, g);
      if constexpr (kBits == 6) {
        const __m512i high = at(v, row_of_high_bits(g));
        add_halves(with_high_bits<0>(halves(at(v, row_of_four<6>(g))), high), v, g);
        add_halves(with_high_bits<1>(halves(at(v, row_of_four<6>(g + 4))), high), v, g + 4);
      }
    };
    for (; run < w + kScales; run += kRunBytes<kBits>, r += kQuantisedRun) {
      for (int64_t g = 0; g < passes_for(kBits); ++g) {
        HWY_UNROLL(8)
        for (int v = 0; v < V; ++v) add_weights(v, g);
      }
    }
    HWY_UNROLL(8)
    for (int v = 0; v < V; ++v) {
      const __m512 scale = load_scales(w + v / 2 * t.b_stride + kScales + v % 2 * 32);
      HWY_UNROLL(6)
      for (int i = 0; i < M; ++i)
        y[i][v] = add_scaled(y[i][v], sums[i][v], _mm512_set1_ps(rows[i].step[b]), scale);
    }
  }
  HWY_UNROLL(6)
  for (int i = 0; i < M; ++i) {
    HWY_UNROLL(8)
    for (int v = 0; v < V; ++v) _mm512_storeu_ps(c + i * t.c_stride + 16 * v, y[i][v]);
  }
}

using TileRows = void (*)(const Tile&, const Part&, AskAhead&);

template <bool kWide>
constexpr int panels_of(int rows) {
  return kWide ? panels_for(rows) : 1;
}

// For 1 .. kRows rows.
template <int kBits, bool kWide, int... M>
TileRows tile_for(int64_t rows, std::integer_sequence<int, M...>) {
  static constexpr TileRows kTiles[] = {tile_rows<kBits, M + 1, panels_of<kWide>(M + 1)>...};
  return kTiles[rows - 1];
}

template <int kBits>
void vnni_tile(const Tile& t) {
  constexpr auto kAll = std::make_integer_sequence<int, kRows>();
  const int64_t parts = (t.rows + kRows - 1) / kRows;
  AskAhead next(t.ahead, t.panels * parts * t.steps);
  int64_t panel = 0;
  if (parts == 1) {
    const int64_t at_once = panels_for(static_cast<int>(t.rows));
    const TileRows wide = tile_for<kBits, true>(t.rows, kAll);
    for (; panel + at_once <= t.panels; panel += at_once) wide(t, {0, t.rows, panel}, next);
  }
  for (; panel < t.panels; ++panel) {
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t row = even_begin(t.rows, parts, i),
                    rows = even_begin(t.rows, parts, i + 1) - row;
      tile_for<kBits, false>(rows, kAll)(t, {row, rows, panel}, next);
    }
  }
}

}  // namespace

QuantisedTiles vnni_tiles() { return {vnni_tile<8>, vnni_tile<6>, vnni_tile<4>}; }

}  // namespace moraine::cpu

HWY_POP_ATTRIBUTES

#else

namespace moraine::cpu {
QuantisedTiles vnni_tiles() { return {}; }
}  // namespace moraine::cpu

#endif
