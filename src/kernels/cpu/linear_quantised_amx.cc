// Tiles of quantised products on AMX: a run of a panel is two tiles of 16 columns, a dot as long as the run.
//
// Signed rows times unsigned weights (tdpbsud); what the offset of the weights adds is taken off in integers.
#include "kernels/cpu/linear_quantised.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/linear_quantised_lanes.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,fma,avx2,bmi,bmi2")

namespace moraine::cpu {
namespace {

// Vectors take so many rows at once, and wait for the weights; with more tiles are faster, of 4 bits beyond six.
template <int kBits>
constexpr int64_t kFewRows = kBits == 4 ? 6 : 4;
constexpr int64_t kBytesAhead = 4096;  // that a block is asked for; as in linear_amx.h
constexpr int64_t kTileWeights = kPackPanel * kQuantisedRun;  // bytes of two tiles
using Sums = int32_t[kQuantisedRows][kPackPanel];

// Of one panel: the sums of a block, and what the blocks so far come to. Not in y: its rows are often a multiple of
// 4 KiB apart, and a load waits for a store that far away. A row of `block` is half of that from its row of `c`.
struct alignas(64) PanelSums {
  Sums block;
  std::byte apart[2048];
  float c[kQuantisedRows][kPackPanel];
};

// c (+)= step * scale * (sums + what the offset took) of block `number`.
struct Addition {
  int64_t rows = 0;  // none: there is nothing to add yet
  const QuantisedRow* row = nullptr;
  int64_t number = 0;
  bool first = true;  // nothing is in c
  const uint8_t* scales = nullptr;
};

// Integers of 4 or 6 bits of a run to bytes: to [16][128].
template <int kBits>
HWY_INLINE void unpack_run(const uint8_t* run, uint8_t* to) {
  constexpr int P = kParts<kBits>;
  HWY_UNROLL(8)
  for (int64_t step = 0; step < kSteps<kBits>; ++step) {
    HWY_UNROLL(2)
    for (int64_t at = 0; at < kRowBytes; at += 64) {
      __m512i q[4] = {integers_of<kBits, 0>(run + at, step), integers_of<kBits, 1>(run + at, step)};
      if constexpr (P == 4) {
        q[2] = integers_of<kBits, 2>(run + at, step);
        q[3] = integers_of<kBits, 3>(run + at, step);
      }
      HWY_UNROLL(4)
      for (int p = 0; p < P; ++p)
        _mm512_store_si512(to + (step + p * kSteps<kBits>)*kRowBytes + at, q[p]);
    }
  }
}

// The same of a block, run after run.
template <int kBits>
HWY_INLINE void unpack_block(const uint8_t* block, uint8_t* to) {
  for (int64_t run = 0; run < kRuns; ++run)
    unpack_run<kBits>(block + run * kRunBytes<kBits>, to + run * kRunBytes<8>);
}

// What is done between the dots of a block: the sums of the block before it are added, and the block kBytesAhead behind
// it is asked for. One after the other, dots and vectors would each wait for the others to end: a core looks a few dots
// ahead, not a block.
template <int kBits, int kDots>
class Between {
 public:
  // `later`: the block to ask for.
  HWY_INLINE Between(const Addition& a, PanelSums& sums, const uint8_t* later)
      : rows_(a.rows),
        row_(a.row),
        number_(a.number),
        before_(a.first ? 0 : 0xffff),
        scale0_(load_scales(a.scales)),
        scale1_(load_scales(a.scales + 32)),
        sums_(sums),
        later_(later) {}

  // Behind dot number kDot.
  template <int kDot>
  HWY_INLINE void step() {
    constexpr int kRowsAtOnce = 4, kLines = kBlockBytes<kBits> / 64 / kDots;
    HWY_UNROLL(16)
    for (int i = 0; i < kLines; ++i) __builtin_prefetch(later_ + (kDot * kLines + i) * 64);
    HWY_UNROLL(4)
    for (int i = 0; i < kRowsAtOnce; ++i) {
      if (kDot * kRowsAtOnce + i < rows_) add_row(kDot * kRowsAtOnce + i);
    }
  }
  HWY_INLINE void rest() {
    for (int64_t at = kBlockBytes<kBits> / 64 / kDots * kDots * 64; at < kBlockBytes<kBits>;
         at += 64)
      __builtin_prefetch(later_ + at);
  }
  HWY_INLINE void add_all() {
    for (int64_t i = 0; i < rows_; ++i) add_row(i);
  }

 private:
  HWY_INLINE void add_row(int64_t i) {
    const __m512 step = _mm512_set1_ps(row_[i].step[number_]);
    // In every lane by one load: the number comes from memory into all of them at once.
    const __m512i minus = _mm512_set1_epi32(row_[i].minus[number_]),
                  offset = _mm512_maskz_srai_epi32(0xffff, minus, 8 - kBits);
    const __m512i sum0 = _mm512_add_epi32(_mm512_load_si512(sums_.block[i]), offset),
                  sum1 = _mm512_add_epi32(_mm512_load_si512(sums_.block[i] + 16), offset);
    float* c = sums_.c[i];
    const __m512 old0 = _mm512_maskz_loadu_ps(before_, c),
                 old1 = _mm512_maskz_loadu_ps(before_, c + 16);
    _mm512_storeu_ps(c, add_scaled(old0, sum0, step, scale0_));
    _mm512_storeu_ps(c + 16, add_scaled(old1, sum1, step, scale1_));
  }

  const int64_t rows_;
  const QuantisedRow* const row_;
  const int64_t number_;
  const __mmask16 before_;
  const __m512 scale0_, scale1_;
  PanelSums& sums_;
  const uint8_t* const later_;
};

// Tiles 0 to 3 += the dots of a run for up to 32 rows. kLower: the tile of the second sixteen rows, 0: there are none.
// As few tiles as in linear_amx.h.
template <int kLower, int kRun, class Meanwhile>
HWY_INLINE void add_run(AmxTiles& tiles, const int8_t* left, const uint8_t* w,
                        Meanwhile& meanwhile) {
  constexpr int64_t kRow = sizeof(QuantisedRow);
  constexpr int kDot = kRun * (kLower > 0 ? 4 : 2);
  left += kRun * kQuantisedRun, w += kRun * kTileWeights;
  tiles.load<4>(left, kRow);
  tiles.load<6>(w, kRowBytes);
  tiles.dot_bytes<0, 4, 6>();
  meanwhile.template step<kDot>();
  tiles.load<6>(w + kRowBytes / 2, kRowBytes);
  tiles.dot_bytes<1, 4, 6>();
  meanwhile.template step<kDot + 1>();
  if constexpr (kLower > 0) {
    tiles.load<kLower>(left + kAmxRows * kRow, kRow);
    tiles.dot_bytes<3, kLower, 6>();
    meanwhile.template step<kDot + 2>();
    tiles.load<6>(w, kRowBytes);
    tiles.dot_bytes<2, kLower, 6>();
    meanwhile.template step<kDot + 3>();
  }
}

// Sums of a block: tiles 0 to 3 are 0 before its first run.
template <int kLower, class Meanwhile>
HWY_INLINE void multiply(AmxTiles& tiles, const int8_t* left, const uint8_t* w,
                         Meanwhile& meanwhile) {
  static_assert(kRuns == 2);
  tiles.zero<0>();
  tiles.zero<1>();
  if constexpr (kLower > 0) {
    tiles.zero<2>();
    tiles.zero<3>();
  }
  add_run<kLower, 0>(tiles, left, w, meanwhile);
  add_run<kLower, 1>(tiles, left, w, meanwhile);
}

template <int kLower>
HWY_INLINE void store(AmxTiles& tiles, Sums& sums) {
  constexpr int64_t kStride = sizeof sums[0];
  tiles.store<0>(sums[0], kStride);
  tiles.store<1>(sums[0] + 16, kStride);
  if constexpr (kLower == 0) return;
  tiles.store<2>(sums[kAmxRows], kStride);
  tiles.store<3>(sums[kAmxRows] + 16, kStride);
}

template <int kBits, int kLower>
HWY_INLINE void tile_panels(const Tile& t) {
  constexpr int kDots = kLower > 0 ? 8 : 4;
  TileShapes shapes;
  const int64_t upper = std::min(t.rows, kAmxRows), lower = t.rows - upper;
  shapes.set(0, upper, kAmxWords).set(1, upper, kAmxWords).set(4, upper, kAmxWords);
  shapes.set(6, kAmxRows, kAmxWords);
  if (kLower > 0)
    shapes.set(2, lower, kAmxWords).set(3, lower, kAmxWords).set(kLower, lower, kAmxWords);
  AmxTiles tiles(shapes);
  const auto* rows = static_cast<const QuantisedRow*>(t.a);
  PanelSums sums;
  alignas(64) uint8_t bytes[kBits < 8 ? kRuns * kTileWeights : 64];
  for (int64_t p = 0; p < t.panels; ++p) {
    const uint8_t* w = static_cast<const uint8_t*>(t.b) + p * t.b_stride;
    float* c = t.c + p * kPanel;
    if (t.add) copy_sums(sums.c[0], kPanel, c, t.c_stride, t.rows);
    Addition addition = {.scales = scales_of<kBits>(w)};
    for (int64_t b = 0; b < t.steps; ++b) {
      const uint8_t* block = w + b * kBlockBytes<kBits>;
      if constexpr (kBits < 8) unpack_block<kBits>(block, bytes);
      Between<kBits, kDots> between(addition, sums, block + kBytesAhead);
      multiply<kLower>(tiles, rows->r + b * kQuantisedBlock, kBits < 8 ? bytes : block, between);
      between.rest();
      store<kLower>(tiles, sums.block);
      addition = {.rows = t.rows,
                  .row = rows,
                  .number = b,
                  .first = b == 0 && !t.add,
                  .scales = scales_of<kBits>(block)};
    }
    Between<kBits, kDots>(addition, sums, nullptr).add_all();
    copy_sums(c, t.c_stride, sums.c[0], kPanel, t.rows);
  }
}

template <int kBits>
void amx_tile(const Tile& t) {
  if (t.rows <= kFewRows<kBits>) return vnni_tiles().of(kBits)(t);
  if (t.rows <= kAmxRows) return tile_panels<kBits, 0>(t);
  t.rows == 2 * kAmxRows ? tile_panels<kBits, 4>(t) : tile_panels<kBits, 5>(t);
}

}  // namespace

QuantisedTiles quantised_amx_tiles() { return {amx_tile<8>, amx_tile<6>, amx_tile<4>}; }

}  // namespace moraine::cpu

HWY_POP_ATTRIBUTES

#else

namespace moraine::cpu {
QuantisedTiles quantised_amx_tiles() { return {}; }
}  // namespace moraine::cpu

#endif
