// LinearEngine: the inner functions of dense products for one instruction set.
//
// Every product is  c[i,j] (+)= sum_s a[i,s] * b[s,j]  over blocks of the sum. The right operand is
// made of panels of 32 columns, step after step; the left one of panels of up to `tile_rows` rows.
// A step is one f32, or a pair of bf16 neighbours along the sum in one word.
//
//   right panel    [step][32]                packed weights, or columns of x (weight gradient)
//   row panel      [row][kRowWords]          rows of x, copied; steps of one row are contiguous. On AMX also rows of
//                                            x where they stand, Tile::a_row bytes apart
//                                            Zeros behind the sum up to a multiple of 16 steps (bf16)
//                  Quantised packs have steps of 128 inputs and rows of integers (linear_quantised.h)
//   column panel   [step][column_width]      columns of dy, copied. On AMX
//                  [step / 16][32][16]       instead: a row of a tile is 16 steps of one column
//
// Order:   an element's sum is the same for every number of rows in the tile and every position.
//          f32, bf16: within a block one chain of fused multiply-adds over ascending steps from zero;
//          blocks have sum_block elements; their sums are added in ascending order. AMX: dots of 16
//          steps (amx_tiles.h), ascending, onto what was there.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/ask_ahead.h"
#include "kernels/linear.h"
#include "tensor/dtype.h"

namespace moraine::cpu {

constexpr int64_t kPanel = kPackPanel;  // columns of a right panel: two 512-bit vectors
constexpr int64_t kBlockWords = 512;    // steps of a block: 14 rows x 2 KiB stay in L1
constexpr int64_t kRowWords =
    kBlockWords + 16;                 // an odd number of cache lines: rows spread over the sets
constexpr int64_t kMaxTileRows = 32;  // of any engine
constexpr int64_t kMaxPartSum = 128;  // 16 KiB of a panel in f32: half of the smallest L1

// Rows that a later tile takes from x and writes to y, or of dw, to which it adds, asked for between the steps of
// this one: in one run they would hold it up, and a store that finds its line does not hold up the stores behind it.
struct NextRows {
  static constexpr int64_t kSteps = 16;  // of float engines between two turns
  AskRows x, y;
  bool any() const { return x.any() || y.any(); }
  [[gnu::always_inline]] void turn() { x.share(), y.share(); }
};

struct Tile {
  const void* a;     // row or column panel
  const void* b;     // right panels
  int64_t b_stride;  // bytes from one right panel to the next
  int64_t panels;    // right panels, 32 columns of c each
  int64_t steps;     // of the sum
  float* c;          // [rows, 32 * panels] out, or added to
  int64_t c_stride;  // elements
  int64_t rows;      // 1 .. tile_rows, or StreamedTiles::rows
  bool add;
  bool far = false;  // the pack comes from memory
  Ahead ahead = {};
  NextRows* next = nullptr;  // or null; of an engine with turn_steps
  // Of an engine that rounds, and of the whole sum: out, and c, whose stride it has, is null. Or null.
  BF16* rounded = nullptr;
  // A block of the sum that comes in parts, of one panel: the chain goes on from here unless the block begins, and
  // back to here unless it ends. [rows][32]
  float* chain = nullptr;
  bool begins = true, ends = true;
  // Bytes from one row of a row panel to the next, of an engine that reads rows in place.
  int64_t a_row = 4 * kRowWords;
};

// Rows of a row-major matrix into a row panel.
struct RowCopy {
  void* panel;
  const void* from;
  DType dtype;
  int64_t stride;  // elements
  int64_t rows;
  int64_t sum;  // elements of each row, at most sum_block
};

// Columns of a row-major matrix into panels of `width` words; missing columns and steps are zero.
struct ColumnCopy {
  void* panels = nullptr;
  int64_t panel_bytes = 0;  // from one panel to the next
  int64_t count = 0;        // panels
  int64_t width = 0;        // words per step
  int64_t columns = 0;      // of all panels together
  bool even = false;  // panel p begins at column even_begin(columns, count, p), else at p * width
  const void* from = nullptr;
  DType dtype;
  int64_t stride;  // elements
  int64_t sum;     // rows of `from`
};

// Finished sums to their destination: y = alpha * c + bias + beta * y0.
struct Finish {
  void* y;
  DType dtype;       // f32 or bf16
  int64_t y_stride;  // elements
  const float* c;
  int64_t c_stride;
  int64_t rows, columns;
  const float* bias;  // [columns] or null
  float alpha, beta;
  const float* y0;  // like y, or null; may be y
};

// Parts of a right panel that stay in L1 while many tiles take turns at them: for tiles of so few rows that a panel
// would have to come from L2 about as fast as it is multiplied. Weight gradients of such an engine take one right panel
// at a time, too.
struct PanelParts {
  int64_t sum =
      0;  // elements of the sum in a part, at most kMaxPartSum; 0: a tile takes panels whole, one after the other
  // `steps` of a right panel as f32 [row_step * steps][32] for `tile`; null: they are so already.
  void (*widen)(float* to, const void* right, int64_t steps) = nullptr;
  void (*tile)(const Tile&) = nullptr;  // of such a part and rows
};

// Tiles of a pack that comes from memory, of more rows than others: each panel is there for all of them at once.
struct StreamedTiles {
  int64_t rows = 0;  // at most; 0: as other tiles
  // Any number of steps if rows are read in place, else up to sum_block.
  void (*tile)(const Tile&) = nullptr;
};

// An engine of quantised packs has row products only: the functions of columns are null.
struct LinearEngine {
  int64_t tile_rows;
  int64_t row_run =
      1;  // rows are cut where they are multiples of it: tile_rows, or 1, for tiles as even as can be
  int64_t column_width;             // >= tile_rows
  int64_t sum_block;                // elements, even
  int64_t row_step;                 // elements of the sum in one step of row_tile
  int64_t step_bytes;               // of a right panel
  int64_t column_step;              // and of column_tile
  int64_t column_round;             // column panels have a multiple of it in steps
  int64_t right_bytes = 512 << 10;  // of right panels that a task keeps: half of an L2
  int64_t cache_bytes = 4 << 20;    // a larger pack comes from memory
  // Steps of a block of a weight gradient's sum. Shorter blocks add to dw more often, longer ones leave fewer columns
  // in L2: vdpbf16ps 2048 x 1024 x 512 (Zen 5) runs at 79 % of peak with 512, at 93 % with 256.
  int64_t column_steps = 256;
  double step_cost;       // of a full tile, per panel: about as many multiply-adds of 16 lanes
  int64_t ahead_rows;     // least rows of a product whose row_tile heeds Tile::ahead; 0: none does
  int64_t ahead_streams;  // at once: kStreams by AskAhead, or 1
  int64_t turn_steps;     // of a tile between two turns of Tile::next; 0: none heeds it
  bool in_place =
      false;  // row_tile heeds Tile::a_row: rows of bf16 on cache lines, of whole lines, are not copied
  bool rounds =
      false;  // row_tile heeds Tile::rounded; not of an engine with parts or streamed tiles
  PanelParts parts = {};
  StreamedTiles streamed = {};
  void (*copy_rows)(const RowCopy&);
  void (*copy_right)(const ColumnCopy&);  // columns of x into right panels
  void (*copy_left)(const ColumnCopy&);   // columns of dy into column panels
  void (*row_tile)(const Tile&);
  void (*column_tile)(const Tile&);
  void (*finish)(const Finish&);
};

// Asks into L2 for a panel's columns, from `column` on, of the rows that a copy comes to 32 rows behind [s0, s1): runs
// of a few lines per row are too short for the machine to foresee. All panels at once gained nothing (Zen 4). Nothing
// is asked for of the first 32 rows, nor of a line that the panel's last columns reach into.
[[gnu::always_inline]] inline void ask_behind(const ColumnCopy& c, int64_t column, int64_t s0,
                                              int64_t s1) {
  constexpr int64_t kLine = 64, kBehind = 32;
  const int64_t size = dtype_bytes(c.dtype), bytes = std::min(c.width, c.columns - column) * size;
  const char* row = static_cast<const char*>(c.from) + ((s0 + kBehind) * c.stride + column) * size;
  for (int64_t s = s0 + kBehind; s < std::min(s1 + kBehind, c.sum); ++s, row += c.stride * size) {
    for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at, 0, 2);
  }
}

inline int64_t even_begin(int64_t extent, int64_t parts, int64_t part) {
  return extent * part / parts;
}

// The same, but for parts of whole runs of `run`, of which the last may be short.
inline int64_t runs_begin(int64_t extent, int64_t run, int64_t parts, int64_t part) {
  return std::min(extent, run * even_begin((extent + run - 1) / run, parts, part));
}

// The engine for plain packs of this type on the current Isa.
const LinearEngine& linear_engine(DType dtype);
// The engine for this pack.
LinearEngine linear_engine(const PackedMatrix& w);

// Implementations, by file.
const LinearEngine& f32_engine(DType dtype);  // linear_f32.cc: any Isa; widens bf16
const LinearEngine* bf16_engine();            // linear_bf16.cc: from kAvx512Bf16 on; else null
const LinearEngine* amx_engine();             // linear_amx.cc: kAmx; else null

}  // namespace moraine::cpu
