// Tiles of quantised products with vpdpbusd: four products of a byte each a lane, up to six rows at a time.
#include "kernels/cpu/linear_quantised.h"
#include "kernels/cpu/linear_quantised_lanes.h"

#if defined(__x86_64__)

#include <hwy/cache_control.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <utility>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,avx2,bmi,bmi2")

namespace moraine::cpu {
namespace {

constexpr int kRows = 6;  // 12 sums of integers, 12 of floats, weights, scales: 30 of 32 registers
constexpr int kVectors = 2;

// Four inputs of a row, in every lane.
HWY_INLINE __m512i four(const int8_t* r) {
  int32_t word;
  std::memcpy(&word, r, sizeof word);
  return _mm512_set1_epi32(word);
}

struct Part {
  int64_t row, rows, panel;
};

// M rows x one panel.
template <bool kQ4, int M>
HWY_INLINE void tile_rows(const Tile& t, const Part& part, AskAhead& next) {
  constexpr int64_t kScales = kBlockBytes<kQ4> - 2 * kPackPanel;
  const QuantisedRow* rows = static_cast<const QuantisedRow*>(t.a) + part.row;
  const uint8_t* w = static_cast<const uint8_t*>(t.b) + part.panel * t.b_stride;
  float* c = t.c + part.row * t.c_stride + part.panel * kPanel;
  __m512 y[M][kVectors];
  HWY_UNROLL(6)
  for (int i = 0; i < M; ++i) {
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v)
      y[i][v] = t.add ? _mm512_loadu_ps(c + i * t.c_stride + 16 * v) : _mm512_setzero_ps();
  }
  for (int64_t b = 0; b < t.steps; ++b, w += kBlockBytes<kQ4>) {
    next.step();
    __m512i sums[M][kVectors];
    HWY_UNROLL(6)
    for (int i = 0; i < M; ++i)
      sums[i][0] = sums[i][1] = _mm512_set1_epi32(-kWeightOffset<kQ4> * rows[i].sum[b]);
    const auto add = [&](const __m512i(&q)[kVectors], int64_t g) HWY_ATTR {
      HWY_UNROLL(6)
      for (int i = 0; i < M; ++i) {
        const __m512i x = four(rows[i].r + b * kQuantisedBlock + 4 * g);
        HWY_UNROLL(2)
        for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm512_dpbusd_epi32(sums[i][v], q[v], x);
      }
    };
    for (int64_t g = 0; g < (kQ4 ? 8 : 16); ++g) {
      const __m512i q[kVectors] = {_mm512_loadu_si512(w + 128 * g),
                                   _mm512_loadu_si512(w + 128 * g + 64)};
      hwy::Prefetch(w + kQuantisedPrefetch + 128 * g);
      hwy::Prefetch(w + kQuantisedPrefetch + 128 * g + 64);
      if constexpr (kQ4) {
        const Halves h[kVectors] = {halves(q[0]), halves(q[1])};
        add({h[0].low, h[1].low}, g);
        add({h[0].high, h[1].high}, g + 8);
      } else {
        add(q, g);
      }
    }
    const __m512 scales[kVectors] = {load_scales(w + kScales), load_scales(w + kScales + 32)};
    HWY_UNROLL(6)
    for (int i = 0; i < M; ++i) {
      const __m512 step = _mm512_set1_ps(rows[i].step[b]);
      HWY_UNROLL(2)
      for (int v = 0; v < kVectors; ++v) y[i][v] = add_scaled(y[i][v], sums[i][v], step, scales[v]);
    }
  }
  HWY_UNROLL(6)
  for (int i = 0; i < M; ++i) {
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(c + i * t.c_stride + 16 * v, y[i][v]);
  }
}

template <bool kQ4, int... M>
HWY_INLINE void few_rows(const Tile& t, const Part& part, AskAhead& next,
                         std::integer_sequence<int, M...>) {
  static constexpr void (*kTiles[])(const Tile&, const Part&,
                                    AskAhead&) = {tile_rows<kQ4, M + 1>...};
  kTiles[part.rows - 1](t, part, next);
}

template <bool kQ4>
void vnni_tile(const Tile& t) {
  const int64_t parts = (t.rows + kRows - 1) / kRows;
  AskAhead next(t.ahead, t.panels * parts * t.steps);
  for (int64_t panel = 0; panel < t.panels; ++panel) {
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t row = even_begin(t.rows, parts, i);
      const Part part = {
          .row = row, .rows = even_begin(t.rows, parts, i + 1) - row, .panel = panel};
      few_rows<kQ4>(t, part, next, std::make_integer_sequence<int, kRows>());
    }
  }
}

}  // namespace

QuantisedTiles vnni_tiles() { return {vnni_tile<false>, vnni_tile<true>}; }

}  // namespace moraine::cpu

HWY_POP_ATTRIBUTES

#else

namespace moraine::cpu {
QuantisedTiles vnni_tiles() { return {}; }
}  // namespace moraine::cpu

#endif
