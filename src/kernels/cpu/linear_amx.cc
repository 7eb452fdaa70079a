// The AMX engine of dense products: copies into panels that tiles can load, tile functions of
// linear_amx.h; rows and finished sums as the bf16 engine does.
#include "kernels/cpu/linear_amx.h"

#include "kernels/cpu/linear_amx_streamed.h"

#if defined(__x86_64__)

#include <hwy/highway.h>
#include <immintrin.h>

#include <algorithm>

#include "kernels/cpu/linear_pairs.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,fma,avx2,bmi,bmi2")

namespace moraine::cpu {
namespace {

constexpr int64_t kDotRows = 2 * kAmxWords;  // of x and dy in one dot

// Which columns a panel has.
struct PanelColumns {
  int64_t begin, count;
};
PanelColumns panel_columns(const ColumnCopy& c, int64_t p) {
  const int64_t begin = c.even ? even_begin(c.columns, c.count, p) : p * c.width;
  const int64_t end = c.even ? even_begin(c.columns, c.count, p + 1) : begin + c.width;
  return {begin, std::min(end, c.columns) - begin};
}

// Asks for rows [s0, s1) of a copy: runs of a few lines per row are too short for the machine to
// foresee.
HWY_INLINE void prefetch_rows(const ColumnCopy& c, int64_t s0, int64_t s1) {
  constexpr int64_t kLine = 64;
  const int64_t size = dtype_bytes(c.dtype), bytes = c.columns * size;
  for (int64_t s = s0; s < s1; ++s) {
    const char* row = static_cast<const char*>(c.from) + s * c.stride * size;
    for (int64_t at = 0; at < bytes + kLine - 1; at += kLine) {
      __builtin_prefetch(row + std::min(at, bytes - 1));
    }
  }
}

// Calls f(s0, panel) for runs of kDotRows rows, all panels of a run one after another: few open rows.
template <class F>
HWY_INLINE void for_dots(const ColumnCopy& c, const F& f) {
  for (int64_t s0 = 0; s0 < c.sum; s0 += kDotRows) {
    const int64_t s1 = std::min(s0 + kDotRows, c.sum);
    prefetch_rows(c, s1, std::min(s1 + kDotRows, c.sum));
    for (int64_t p = 0; p < c.count; ++p) f(s0, p);
  }
}

// Rows s and s + 1 become step s / 2: word j is element j of the second above element j of the first.
void copy_right(const ColumnCopy& c) {
  const __m512i low = _mm512_load_si512(kPairs[0]), high = _mm512_load_si512(kPairs[1]);
  for_dots(c, [&](int64_t s0, int64_t p) {
    const PanelColumns columns = panel_columns(c, p);
    const __mmask32 mask = _bzhi_u32(0xffffffffu, static_cast<unsigned>(columns.count));
    const uint16_t* from = static_cast<const uint16_t*>(c.from) + s0 * c.stride + columns.begin;
    uint8_t* to = static_cast<uint8_t*>(c.panels) + p * c.panel_bytes + s0 / 2 * 4 * kPanel;
    for (int64_t s = 0; s < kDotRows; s += 2, from += 2 * c.stride, to += 4 * kPanel) {
      const __m512i first = _mm512_maskz_loadu_epi16(s0 + s < c.sum ? mask : 0, from);
      const __m512i second =
          _mm512_maskz_loadu_epi16(s0 + s + 1 < c.sum ? mask : 0, from + c.stride);
      _mm512_storeu_si512(to, _mm512_permutex2var_epi16(first, low, second));
      _mm512_storeu_si512(to + 64, _mm512_permutex2var_epi16(first, high, second));
    }
  });
}

// Eight elements of rows s, s + 8, s + 16, s + 24, one row per 128 bits; rows from `rows` on are zero.
template <bool kAll>
HWY_INLINE __m512i four_rows(const uint16_t* from, int64_t stride, int64_t s, int64_t rows,
                             __mmask8 mask) {
  const auto row = [&](int64_t r) {
    if (kAll) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + r * stride));
    return _mm_maskz_loadu_epi16(r < rows ? mask : 0, from + r * stride);
  };
  __m512i v = _mm512_zextsi128_si512(row(s));
  v = _mm512_inserti32x4(v, row(s + 8), 1);
  v = _mm512_inserti32x4(v, row(s + 16), 2);
  return _mm512_inserti32x4(v, row(s + 24), 3);
}

// The forms without a mask trip -Wmaybe-uninitialized in gcc 12.
template <bool kUpper>
HWY_INLINE __m512i unpack_words(__m512i a, __m512i b) {
  return kUpper ? _mm512_maskz_unpackhi_epi32(0xffff, a, b)
                : _mm512_maskz_unpacklo_epi32(0xffff, a, b);
}
template <bool kUpper>
HWY_INLINE __m512i unpack_pairs(__m512i a, __m512i b) {
  return kUpper ? _mm512_maskz_unpackhi_epi64(0xff, a, b) : _mm512_maskz_unpacklo_epi64(0xff, a, b);
}

// to[16 words] of each of 8 columns: its elements of 32 rows, in order. Within each 128 bits, three
// levels of interleaving transpose 8 x 8 elements.
template <bool kAll>
HWY_INLINE void transpose_8(const uint16_t* from, int64_t stride, int64_t rows, __mmask8 mask,
                            uint8_t* to) {
  __m512i row[8], pair[8], four[8];
  HWY_UNROLL(8)
  for (int i = 0; i < 8; ++i) row[i] = four_rows<kAll>(from, stride, i, rows, mask);
  HWY_UNROLL(4)
  for (int i = 0; i < 4; ++i) {  // pair[i]: columns 0 to 3 of two rows; pair[i + 4]: 4 to 7
    pair[i] = _mm512_unpacklo_epi16(row[2 * i], row[2 * i + 1]);
    pair[i + 4] = _mm512_unpackhi_epi16(row[2 * i], row[2 * i + 1]);
  }
  HWY_UNROLL(2)
  for (int i = 0; i < 2; ++i) {  // four[i + 2 c]: columns 2 c, 2 c + 1 of rows 4 i to 4 i + 3
    four[i] = unpack_words<false>(pair[2 * i], pair[2 * i + 1]);
    four[i + 2] = unpack_words<true>(pair[2 * i], pair[2 * i + 1]);
    four[i + 4] = unpack_words<false>(pair[2 * i + 4], pair[2 * i + 5]);
    four[i + 6] = unpack_words<true>(pair[2 * i + 4], pair[2 * i + 5]);
  }
  HWY_UNROLL(4)
  for (int c = 0; c < 4; ++c) {
    _mm512_storeu_si512(to + 128 * c, unpack_pairs<false>(four[2 * c], four[2 * c + 1]));
    _mm512_storeu_si512(to + 128 * c + 64, unpack_pairs<true>(four[2 * c], four[2 * c + 1]));
  }
}

void copy_left(const ColumnCopy& c) {
  for_dots(c, [&](int64_t s0, int64_t p) {
    const PanelColumns columns = panel_columns(c, p);
    const uint16_t* from = static_cast<const uint16_t*>(c.from) + s0 * c.stride + columns.begin;
    uint8_t* to =
        static_cast<uint8_t*>(c.panels) + p * c.panel_bytes + s0 / kDotRows * 2 * kAmxBytes;
    const int64_t rows = std::min(kDotRows, c.sum - s0);
    for (int64_t j = 0; j < columns.count; j += 8) {
      const int64_t here = std::min<int64_t>(8, columns.count - j);
      if (rows == kDotRows && here == 8) {
        transpose_8<true>(from + j, c.stride, rows, 0xff, to + 64 * j);
      } else {
        const auto mask = static_cast<__mmask8>(_bzhi_u32(0xff, static_cast<unsigned>(here)));
        transpose_8<false>(from + j, c.stride, rows, mask, to + 64 * j);
      }
    }
  });
}

}  // namespace

const LinearEngine* amx_engine() {
  static const LinearEngine engine = {.tile_rows = kAmxTileRows,
                                      .row_run = kAmxTileRows,
                                      .column_width = kAmxTileRows,
                                      .sum_block = 2 * kBlockWords,
                                      .row_step = 2,
                                      .step_bytes = kPanel * 4,
                                      .column_step = 2,
                                      .column_round = kAmxWords,
                                      .right_bytes = 1 << 20,
                                      .column_steps = 384,
                                      .step_cost = 4,
                                      .ahead_rows = 1,
                                      .ahead_streams = Ahead::kStreams,
                                      .turn_steps = 0,
                                      .in_place = true,
                                      .streamed = {kStreamedRows, amx_streamed_tile<AmxTiles>},
                                      .copy_rows = bf16_engine()->copy_rows,
                                      .copy_right = copy_right,
                                      .copy_left = copy_left,
                                      .row_tile = amx_tile<AmxTiles, false>,
                                      .column_tile = amx_tile<AmxTiles, true>,
                                      .finish = bf16_engine()->finish};
  return &engine;
}

}  // namespace moraine::cpu

HWY_POP_ATTRIBUTES

#else

namespace moraine::cpu {
const LinearEngine* amx_engine() { return nullptr; }
}  // namespace moraine::cpu

#endif
