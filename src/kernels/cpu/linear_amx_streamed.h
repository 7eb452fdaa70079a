// AmxStreamed: the tile function of dense products whose packs come from memory, over tiles as in linear_amx.h.
//
// Up to 128 rows, in sixteens that take turns at parts of a panel: 1 x 2 tiles of sums, one of each operand at a
// time. Where operands are in L2 that is slower by a sixth than 2 x 2 tiles; here it is not, and with four tiles
// in use a core that two threads share takes 14 ns a dot, not 17.
//
// Order:   as in linear_amx.h, and the same bits.
#pragma once

#include <algorithm>

#include "kernels/cpu/linear_amx.h"

namespace moraine::cpu {

constexpr int64_t kStreamedRows = 128;
constexpr int64_t kPartDots = 8;  // 16 KiB of a panel stay in L1 while all rows pass

// Sixteen rows or fewer times a part of a right panel.
struct StreamedPart {
  const uint8_t* a;  // the first row
  const uint8_t* b;
  const uint8_t* tail;  // as of a RightPanel
  int64_t dots;         // but the tail
  const float* from;    // sums so far, or null
  int64_t from_stride;  // bytes, as to_stride
  float* to;
  int64_t to_stride;
  bool asks;  // for the lines behind b: rows that come after find them
};

// Sums in tiles kSums and kSums + 1, rows in tile kRows.
template <int kSums, int kRows, class Tiles>
void multiply_part(Tiles& tiles, int64_t a_row, const StreamedPart& p, AskAhead& next) {
  constexpr int64_t kDotBytes = 4 * kAmxWords;
  if (p.from != nullptr) {
    tiles.template load<kSums>(p.from, p.from_stride);
    tiles.template load<kSums + 1>(p.from + kAmxWords, p.from_stride);
  } else {
    tiles.template zero<kSums>();
    tiles.template zero<kSums + 1>();
  }
  const auto add = [&](const uint8_t* a, const uint8_t* b) {
    tiles.template load<kRows>(a, a_row);
    tiles.template load<6>(b, 4 * kPanel);
    tiles.template dot<kSums, kRows, 6>();
    tiles.template load<6>(b + kDotBytes, 4 * kPanel);
    tiles.template dot<kSums + 1, kRows, 6>();
    next.step();
  };
  for (int64_t dot = 0; dot < p.dots; ++dot) {
    const uint8_t* b = p.b + dot * kRightDotBytes;
    if (p.asks) prefetch_lines(b + kPrefetchBytes, kRightDotBytes);
    add(p.a + dot * kDotBytes, b);
  }
  if (p.tail != nullptr) add(p.a + p.dots * kDotBytes, p.tail);
  tiles.template store<kSums>(p.to, p.to_stride);
  tiles.template store<kSums + 1>(p.to + kAmxWords, p.to_stride);
  tiles.template zero<kSums>();
  tiles.template zero<kSums + 1>();
  tiles.template zero<kRows>();
}

// Streamed::tile of an engine: up to kStreamedRows rows.
template <class Tiles>
void amx_streamed_tile(const Tile& t) {
  const int64_t rest = t.rows % kAmxRows, dots = t.steps / kAmxWords;
  TileShapes shapes;
  shapes.set(6, kAmxWords, kAmxWords);
  if (t.rows >= kAmxRows) shapes.set(0, kAmxRows, kAmxWords).set(1, kAmxRows, kAmxWords);
  if (t.rows >= kAmxRows) shapes.set(4, kAmxRows, kAmxWords);
  if (rest > 0) shapes.set(2, rest, kAmxWords).set(3, rest, kAmxWords).set(5, rest, kAmxWords);
  Tiles tiles(shapes);
  const bool one = t.rows <= kAmxRows;
  const int64_t part_dots = one ? std::max<int64_t>(dots, 1) : kPartDots;
  PanelTail tail(t);
  AskAhead next(t.ahead, t.panels * ceil_div(t.steps, kAmxWords) * ceil_div(t.rows, kAmxRows));
  alignas(64) float sums[kStreamedRows][kPanel + kAmxWords];  // rows an odd number of lines apart
  for (int64_t p = 0; p < t.panels; ++p) {
    const uint8_t* b = static_cast<const uint8_t*>(t.b) + p * t.b_stride;
    const uint8_t* behind = tail.of(b);
    int64_t dot0 = 0;
    do {
      const bool first = dot0 == 0, last = dot0 + part_dots >= dots;
      for (int64_t row = 0; row < t.rows; row += kAmxRows) {
        float* c = t.c + row * t.c_stride + p * kPanel;
        const float* old = first ? t.add ? c : nullptr : sums[row];
        const StreamedPart part = {
            .a = static_cast<const uint8_t*>(t.a) + row * t.a_row + dot0 * 4 * kAmxWords,
            .b = b + dot0 * kRightDotBytes,
            .tail = last ? behind : nullptr,
            .dots = std::min(part_dots, dots - dot0),
            .from = old,
            .from_stride = first ? 4 * t.c_stride : int64_t{sizeof sums[0]},
            .to = last ? c : sums[row],
            .to_stride = last ? 4 * t.c_stride : int64_t{sizeof sums[0]},
            .asks = row == 0};
        t.rows - row < kAmxRows ? multiply_part<2, 5>(tiles, t.a_row, part, next)
                                : multiply_part<0, 4>(tiles, t.a_row, part, next);
      }
      dot0 += part_dots;
    } while (dot0 < dots);
  }
}

}  // namespace moraine::cpu
