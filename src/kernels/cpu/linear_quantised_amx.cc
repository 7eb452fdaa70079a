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

// Lines of the block that comes later, asked for a few at a time: all at once they wait for one another.
template <int64_t kBytes>
class BlockAhead {
 public:
  explicit BlockAhead(const uint8_t* block) : at_(block), end_(block + kBytes) {}
  [[gnu::always_inline]] void ask(int lines) {
    for (int i = 0; i < lines; ++i, at_ += 64) __builtin_prefetch(at_);
  }
  [[gnu::always_inline]] void ask_rest() {
    for (; at_ < end_; at_ += 64) __builtin_prefetch(at_);
  }

 private:
  const uint8_t* at_;
  const uint8_t* const end_;
};

// Tiles 0 to 3 += the dots of a run for up to 32 rows. kLower: the tile of the second sixteen rows, 0: there are none.
// As few tiles as in linear_amx.h.
template <int kLower, int kLines, class Later>
HWY_INLINE void add_run(AmxTiles& tiles, const int8_t* left, const uint8_t* w, Later& later) {
  constexpr int64_t kRow = sizeof(QuantisedRow);
  tiles.load<4>(left, kRow);
  tiles.load<6>(w, kRowBytes);
  tiles.dot_bytes<0, 4, 6>();
  later.ask(kLines);
  tiles.load<6>(w + kRowBytes / 2, kRowBytes);
  tiles.dot_bytes<1, 4, 6>();
  later.ask(kLines);
  if constexpr (kLower > 0) {
    tiles.load<kLower>(left + kAmxRows * kRow, kRow);
    tiles.dot_bytes<3, kLower, 6>();
    later.ask(kLines);
    tiles.load<6>(w, kRowBytes);
    tiles.dot_bytes<2, kLower, 6>();
    later.ask(kLines);
  }
}

// Sums of a block: tiles 0 to 3 are 0 before its first run.
template <int kLower, int kLines, class Later>
HWY_INLINE void multiply(AmxTiles& tiles, const int8_t* left, const uint8_t* w, AskAhead& next,
                         Later& later) {
  tiles.zero<0>();
  tiles.zero<1>();
  if constexpr (kLower > 0) {
    tiles.zero<2>();
    tiles.zero<3>();
  }
  HWY_UNROLL(2)
  for (int64_t run = 0; run < kRuns; ++run)
    add_run<kLower, kLines>(tiles, left + run * kQuantisedRun, w + run * kTileWeights, later);
  next.step();
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

// offset_sum in every lane: the number comes from memory into all of them at once.
template <int kBits>
HWY_INLINE __m512i offset_sums(const int32_t& minus) {
  return _mm512_maskz_srai_epi32(0xffff, _mm512_set1_epi32(minus), 8 - kBits);
}

// c (+)= step * scale * (sums + what the offset took) of block b.
template <int kBits, bool kAdd>
HWY_INLINE void add_block(const Tile& t, int64_t b, const uint8_t* scales, const Sums& sums,
                          float* c) {
  const __m512 scale0 = load_scales(scales), scale1 = load_scales(scales + 32);
  const QuantisedRow* row = static_cast<const QuantisedRow*>(t.a);
  for (int64_t i = 0; i < t.rows; ++i, ++row, c += kPackPanel) {
    const __m512 step = _mm512_set1_ps(row->step[b]);
    const __m512i offset = offset_sums<kBits>(row->minus[b]);
    const __m512i sum0 = _mm512_add_epi32(_mm512_load_si512(sums[i]), offset),
                  sum1 = _mm512_add_epi32(_mm512_load_si512(sums[i] + 16), offset);
    const __m512 old0 = kAdd ? _mm512_loadu_ps(c) : _mm512_setzero_ps(),
                 old1 = kAdd ? _mm512_loadu_ps(c + 16) : _mm512_setzero_ps();
    _mm512_storeu_ps(c, add_scaled(old0, sum0, step, scale0));
    _mm512_storeu_ps(c + 16, add_scaled(old1, sum1, step, scale1));
  }
}

HWY_INLINE void copy_sums(float* to, int64_t to_stride, const float* from, int64_t from_stride,
                          int64_t rows) {
  for (int64_t i = 0; i < rows; ++i, to += to_stride, from += from_stride) {
    _mm512_storeu_ps(to, _mm512_loadu_ps(from));
    _mm512_storeu_ps(to + 16, _mm512_loadu_ps(from + 16));
  }
}

template <int kBits, int kLower>
HWY_INLINE void tile_panels(const Tile& t) {
  constexpr int kDots = kLower > 0 ? 8 : 4, kLines = kBlockBytes<kBits> / 64 / kDots;
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
  AskAhead next(t.ahead, t.panels * t.steps);
  for (int64_t p = 0; p < t.panels; ++p) {
    const uint8_t* w = static_cast<const uint8_t*>(t.b) + p * t.b_stride;
    const auto add = [&](int64_t b) HWY_ATTR {
      const uint8_t* scales = scales_of<kBits>(w + b * kBlockBytes<kBits>);
      b > 0 || t.add ? add_block<kBits, true>(t, b, scales, sums.block, sums.c[0])
                     : add_block<kBits, false>(t, b, scales, sums.block, sums.c[0]);
    };
    float* c = t.c + p * kPanel;
    if (t.add) copy_sums(sums.c[0], kPanel, c, t.c_stride, t.rows);
    // A block is added while the tiles multiply the next one. Its sums have left the machine's store buffer by
    // then: reading what tiles have just stored waits for that.
    for (int64_t b = 0; b < t.steps; ++b) {
      const uint8_t* block = w + b * kBlockBytes<kBits>;
      BlockAhead<kBlockBytes<kBits>> later(block + kBytesAhead);
      if constexpr (kBits < 8) unpack_block<kBits>(block, bytes);
      multiply<kLower, kLines>(tiles, rows->r + b * kQuantisedBlock, kBits < 8 ? bytes : block,
                               next, later);
      if (b > 0) add(b - 1);
      store<kLower>(tiles, sums.block);
      later.ask_rest();
    }
    add(t.steps - 1);
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
