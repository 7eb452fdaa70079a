// AmxProduct: the tile functions of dense products, over tiles of the machine or emulated ones.
//
// A tile of an engine is up to 32 rows x one right panel: 2 x 2 tiles of sums, two of the left panel,
// two of the right one, each operand by way of one tile, for which one of five loads is a second one. A core
// whose other thread uses tiles too, a neighbour's perhaps, has registers for few: with all eight in use each
// instruction waits for the one before it (24 ns a dot, not 7), with six for fewer (17). A tile of zeros takes
// no register.
//
//   right panel    [step][32]         two tiles side by side: 16 steps of 128 bytes
//   row panel      [row][a_row]       a tile is 16 rows of 64 bytes
//   column panel   [step / 16][32][16]
//
// Order:   dots of 16 steps from multiples of 16, ascending, onto the old sum (or zero): a function of
//          the number of steps alone. Steps that are missing in the last dot are zeros.
// Source:  blocking and the distance of the prefetch as measured on Sapphire Rapids.
#pragma once

#include <cstring>

#include "kernels/ceil_div.h"
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/linear_engine.h"

namespace moraine::cpu {

constexpr int64_t kAmxTileRows = 2 * kAmxRows;
constexpr int64_t kRightDotBytes = kAmxWords * kPanel * 4;  // of a right panel
constexpr int64_t kPrefetchBytes = 4096;  // ahead in the right panel and on into the next: +35 %

// Where tiles of a left panel are, in bytes: from row to row, to the second sixteen, to the next dot.
struct LeftPanel {
  const uint8_t* data;
  int64_t row, half, dot;
};

template <bool kColumns>
LeftPanel left_panel(const Tile& t) {
  const uint8_t* bytes = static_cast<const uint8_t*>(t.a);
  return kColumns ? LeftPanel{bytes, 4 * kAmxWords, kAmxBytes, 2 * kAmxBytes}
                  : LeftPanel{bytes, t.a_row, kAmxRows * t.a_row, 4 * kAmxWords};
}

[[gnu::always_inline]] inline void prefetch_lines(const uint8_t* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
}

// Adds 16 steps to the sums. kLower: the tile of the second sixteen rows, 0: there are none.
template <int kLower, class Tiles>
void add_dot(Tiles& tiles, const LeftPanel& a, int64_t dot, const uint8_t* b, AskAhead& next) {
  const uint8_t* left = a.data + dot * a.dot;
  const uint8_t* ahead = b + kPrefetchBytes;
  constexpr int64_t kQuarter = kRightDotBytes / 4, kSecond = 4 * kAmxWords;
  tiles.template load<4>(left, a.row);
  tiles.template load<6>(b, 4 * kPanel);
  prefetch_lines(ahead, kQuarter);
  tiles.template dot<0, 4, 6>();
  tiles.template load<6>(b + kSecond, 4 * kPanel);
  prefetch_lines(ahead + kQuarter, kQuarter);
  tiles.template dot<1, 4, 6>();
  next.step();
  if constexpr (kLower > 0) tiles.template load<kLower>(left + a.half, a.row);
  prefetch_lines(ahead + 2 * kQuarter, kQuarter);
  if constexpr (kLower > 0) tiles.template dot<3, kLower, 6>();
  if constexpr (kLower > 0) tiles.template load<6>(b, 4 * kPanel);
  prefetch_lines(ahead + 3 * kQuarter, kQuarter);
  if constexpr (kLower > 0) tiles.template dot<2, kLower, 6>();
}

// One right panel; `tail` (or null): the steps behind the whole dots, zeros behind them.
struct RightPanel {
  const uint8_t* data;
  const uint8_t* tail;
  float* c;  // its sums
};

// t.rows x 32 sums.
template <int kLower, class Tiles>
void multiply_panel(Tiles& tiles, const Tile& t, const LeftPanel& a, const RightPanel& right,
                    AskAhead& next) {
  float* c = right.c;
  const uint8_t* b = right.data;
  const int64_t stride = 4 * t.c_stride, dots = t.steps / kAmxWords;
  float* lower = c + kAmxRows * t.c_stride;
  if (t.add) {
    tiles.template load<0>(c, stride);
    tiles.template load<1>(c + kAmxWords, stride);
    if constexpr (kLower > 0) {
      tiles.template load<2>(lower, stride);
      tiles.template load<3>(lower + kAmxWords, stride);
    }
  } else {
    tiles.template zero<0>();
    tiles.template zero<1>();
    if constexpr (kLower > 0) {
      tiles.template zero<2>();
      tiles.template zero<3>();
    }
  }
  for (int64_t dot = 0; dot < dots; ++dot, b += kRightDotBytes) {
    add_dot<kLower>(tiles, a, dot, b, next);
  }
  if (right.tail != nullptr) add_dot<kLower>(tiles, a, dots, right.tail, next);
  tiles.template store<0>(c, stride);
  tiles.template store<1>(c + kAmxWords, stride);
  if constexpr (kLower > 0) {
    tiles.template store<2>(lower, stride);
    tiles.template store<3>(lower + kAmxWords, stride);
  }
}

// The steps of a right panel behind its whole dots, made a dot by zeros.
class PanelTail {
 public:
  explicit PanelTail(const Tile& t)
      : whole_(t.steps / kAmxWords * kRightDotBytes), rest_(t.steps % kAmxWords * 4 * kPanel) {
    if (rest_ > 0) std::memset(dot_ + rest_, 0, static_cast<size_t>(kRightDotBytes - rest_));
  }
  // Null if there are none. Good until the next call.
  const uint8_t* of(const uint8_t* panel) {
    if (rest_ == 0) return nullptr;
    std::memcpy(dot_, panel + whole_, static_cast<size_t>(rest_));
    return dot_;
  }

 private:
  const int64_t whole_, rest_;  // bytes
  alignas(64) uint8_t dot_[kRightDotBytes];
};

template <int kLower, class Tiles>
void multiply_panels(Tiles& tiles, const Tile& t, const LeftPanel& a) {
  PanelTail tail(t);
  AskAhead next(t.ahead, t.panels * ceil_div(t.steps, kAmxWords));
  for (int64_t p = 0; p < t.panels; ++p) {
    const uint8_t* b = static_cast<const uint8_t*>(t.b) + p * t.b_stride;
    multiply_panel<kLower>(tiles, t, a, {b, tail.of(b), t.c + p * kPanel}, next);
  }
}

// row_tile (kColumns false) and column_tile of an engine.
template <class Tiles, bool kColumns>
void amx_tile(const Tile& t) {
  const int64_t upper = t.rows < kAmxRows ? t.rows : kAmxRows, lower = t.rows - upper;
  TileShapes shapes;
  shapes.set(0, upper, kAmxWords).set(1, upper, kAmxWords).set(4, upper, kAmxWords);
  shapes.set(6, kAmxWords, kAmxWords);
  if (lower > 0) shapes.set(2, lower, kAmxWords).set(3, lower, kAmxWords);
  if (lower > 0 && lower < upper) shapes.set(5, lower, kAmxWords);
  Tiles tiles(shapes);
  const LeftPanel a = left_panel<kColumns>(t);
  if (lower == 0) return multiply_panels<0>(tiles, t, a);
  lower == upper ? multiply_panels<4>(tiles, t, a) : multiply_panels<5>(tiles, t, a);
}

}  // namespace moraine::cpu
