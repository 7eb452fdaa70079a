// Tiles of quantised products on AMX: a block of a panel is two tiles of 16 columns, a dot as long as the block.
//
// Signed rows times unsigned weights (tdpbsud); what the offset of the weights adds is taken off in integers.
#include "kernels/cpu/linear_quantised.h"

#if defined(__x86_64__)

#include <hwy/cache_control.h>
#include <immintrin.h>

#include <algorithm>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/linear_quantised_lanes.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,fma,avx2,bmi,bmi2")

namespace moraine::cpu {
namespace {

constexpr int64_t kFewRows = 6;        // vectors take so many at once, and wait for the weights
constexpr int64_t kBytesAhead = 4096;  // that a block is asked for; as in linear_amx.h
constexpr int64_t kTileWeights = kPackPanel * kQuantisedBlock;  // bytes of two tiles
using Sums = int32_t[kQuantisedRows][kPackPanel];

// Halves of bytes to bytes: [8][128] to [16][128].
HWY_INLINE void unpack(const uint8_t* from, uint8_t* to) {
  HWY_UNROLL(4)
  for (int64_t at = 0; at < kTileWeights / 2; at += 64) {
    const Halves h = halves(_mm512_loadu_si512(from + at));
    _mm512_store_si512(to + at, h.low);
    _mm512_store_si512(to + kTileWeights / 2 + at, h.high);
  }
}

// Sums of a block for up to 32 rows, into tiles 0 to 3.
template <bool kTwo>
HWY_INLINE void multiply(AmxTiles& tiles, const QuantisedRow* rows, int64_t b, const uint8_t* w,
                         AskAhead& next) {
  constexpr int64_t kRow = sizeof(QuantisedRow);
  const int8_t* left = rows->r + b * kQuantisedBlock;
  tiles.zero<0>();
  tiles.zero<1>();
  tiles.load<6>(w, 128);
  tiles.load<4>(left, kRow);
  tiles.dot_bytes<0, 4, 6>();
  tiles.load<7>(w + 64, 128);
  tiles.dot_bytes<1, 4, 7>();
  next.step();
  if constexpr (!kTwo) return;
  tiles.zero<2>();
  tiles.zero<3>();
  tiles.load<5>(left + kAmxRows * kRow, kRow);
  tiles.dot_bytes<2, 5, 6>();
  tiles.dot_bytes<3, 5, 7>();
}

template <bool kTwo>
HWY_INLINE void store(AmxTiles& tiles, Sums& sums) {
  constexpr int64_t kStride = sizeof sums[0];
  tiles.store<0>(sums[0], kStride);
  tiles.store<1>(sums[0] + 16, kStride);
  if constexpr (!kTwo) return;
  tiles.store<2>(sums[kAmxRows], kStride);
  tiles.store<3>(sums[kAmxRows] + 16, kStride);
}

// c (+)= step * scale * (sums + what the offset took) of block b.
template <bool kQ4, bool kAdd>
HWY_INLINE void add_block(const Tile& t, int64_t b, const uint8_t* scales, const Sums& sums,
                          float* c) {
  const __m512 scale0 = load_scales(scales), scale1 = load_scales(scales + 32);
  const QuantisedRow* row = static_cast<const QuantisedRow*>(t.a);
  for (int64_t i = 0; i < t.rows; ++i, ++row, c += t.c_stride) {
    const __m512 step = _mm512_set1_ps(row->step[b]);
    const __m512i offset = _mm512_set1_epi32(-kWeightOffset<kQ4> * row->sum[b]);
    const __m512i sum0 = _mm512_add_epi32(_mm512_load_si512(sums[i]), offset),
                  sum1 = _mm512_add_epi32(_mm512_load_si512(sums[i] + 16), offset);
    const __m512 old0 = kAdd ? _mm512_loadu_ps(c) : _mm512_setzero_ps(),
                 old1 = kAdd ? _mm512_loadu_ps(c + 16) : _mm512_setzero_ps();
    _mm512_storeu_ps(c, add_scaled(old0, sum0, step, scale0));
    _mm512_storeu_ps(c + 16, add_scaled(old1, sum1, step, scale1));
  }
}

template <bool kQ4, bool kTwo>
HWY_INLINE void tile_panels(const Tile& t) {
  constexpr int64_t kScales = kBlockBytes<kQ4> - 2 * kPackPanel;
  TileShapes shapes;
  const int64_t upper = std::min(t.rows, kAmxRows), lower = t.rows - upper;
  shapes.set(0, upper, kAmxWords).set(1, upper, kAmxWords).set(4, upper, kAmxWords);
  shapes.set(6, kAmxRows, kAmxWords).set(7, kAmxRows, kAmxWords);
  if (kTwo) shapes.set(2, lower, kAmxWords).set(3, lower, kAmxWords).set(5, lower, kAmxWords);
  AmxTiles tiles(shapes);
  const auto* rows = static_cast<const QuantisedRow*>(t.a);
  alignas(64) Sums sums;
  alignas(64) uint8_t bytes[kQ4 ? kTileWeights : 64];
  AskAhead next(t.ahead, t.panels * t.steps);
  for (int64_t p = 0; p < t.panels; ++p) {
    const uint8_t* w = static_cast<const uint8_t*>(t.b) + p * t.b_stride;
    const auto add = [&](int64_t b) HWY_ATTR {
      const uint8_t* scales = w + b * kBlockBytes<kQ4> + kScales;
      b > 0 || t.add ? add_block<kQ4, true>(t, b, scales, sums, t.c + p * kPanel)
                     : add_block<kQ4, false>(t, b, scales, sums, t.c + p * kPanel);
    };
    // A block is added while the tiles multiply the next one. Its sums have left the machine's store buffer by
    // then: reading what tiles have just stored waits for that.
    for (int64_t b = 0; b < t.steps; ++b) {
      const uint8_t* block = w + b * kBlockBytes<kQ4>;
      for (int64_t at = 0; at < kBlockBytes<kQ4>; at += 64) hwy::Prefetch(block + kBytesAhead + at);
      if constexpr (kQ4) unpack(block, bytes);
      multiply<kTwo>(tiles, rows, b, kQ4 ? bytes : block, next);
      if (b > 0) add(b - 1);
      store<kTwo>(tiles, sums);
    }
    add(t.steps - 1);
  }
}

template <bool kQ4>
void amx_tile(const Tile& t) {
  if (t.rows <= kFewRows) return kQ4 ? vnni_tiles().q4(t) : vnni_tiles().q8(t);
  t.rows > kAmxRows ? tile_panels<kQ4, true>(t) : tile_panels<kQ4, false>(t);
}

}  // namespace

QuantisedTiles quantised_amx_tiles() { return {amx_tile<false>, amx_tile<true>}; }

}  // namespace moraine::cpu

HWY_POP_ATTRIBUTES

#else

namespace moraine::cpu {
QuantisedTiles quantised_amx_tiles() { return {}; }
}  // namespace moraine::cpu

#endif
