// RowsCut: how a product over rows is cut into tasks. Results do not depend on it.
#pragma once

#include <cstdint>

#include "kernels/cpu/linear_engine.h"
#include "kernels/cpu/linear_rows.h"

namespace moraine::cpu {

constexpr int64_t kMaxRowTiles = 16;    // of a task: sums of 512 rows x 1024 columns at most
constexpr int64_t kMaxTilesAtOnce = 4;  // that visit a streamed panel one after the other

// Whether a pack comes from memory: all of integers do, of which a step of decoding reads each once.
bool is_far(const PackedMatrix& w);

// Whether the pack comes from memory, and the engine asks for it if there are rows enough.
bool streams(const RowsProduct& p, const LinearEngine& e);

// Whether `tiles` tiles of a task take turns at parts of panels: where these are widened for all of them, or would
// not stay in L2.
bool by_parts(const RowsProduct& p, const LinearEngine& e, int64_t tiles);

struct RowsCut {
  int64_t column_blocks;
  int64_t together;   // panels of a unit, which is not parted
  int64_t row_tiles;  // of a task, at most
  bool parts;         // tasks of enough tiles for it take panels in parts
};
RowsCut choose_cut(const RowsProduct& p, const LinearEngine& e, int threads);

}  // namespace moraine::cpu
