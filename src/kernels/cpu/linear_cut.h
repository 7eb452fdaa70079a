// RowsCut: how a product over rows is cut into tasks. Results do not depend on it.
#pragma once

#include <cstdint>

#include "kernels/cpu/linear_engine.h"
#include "kernels/cpu/linear_rows.h"

namespace moraine::cpu {

constexpr int64_t kMaxRowTiles = 16;    // of a task: sums of 512 rows x 1024 columns at most
constexpr int64_t kMaxTilesAtOnce = 4;  // that visit a streamed panel one after the other

// A worker's scratch: rows of tiles, all of them of by_parts(); its chains and a part of a panel; sums.
constexpr int64_t kRowsBytes = kMaxTilesAtOnce * kRowPanelBytes;
constexpr int64_t kChainFloats = kMaxRowTiles * kMaxTileRows * kPanel;
constexpr int64_t kPartFloats = kChainFloats + kMaxPartSum * kPanel;
constexpr int64_t kWaitingBytes =
    kWorkerScratchBytes - kRowsBytes - kPartFloats * int64_t{sizeof(float)};

// Whether a pack comes from memory.
bool is_far(const PackedMatrix& w, const LinearEngine& e);

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

// Elements from row to row of sums that wait to be finished: rows a power of two apart share few sets of L1, and a load
// of one waits for stores to others.
constexpr int64_t waiting_width(int64_t panels) { return panels * kPanel + kPanel / 2; }

// Of a task's sums that wait for the next block of the sum; kWaitingBytes at most.
int64_t waiting_bytes(const RowsProduct& p, const LinearEngine& e, const RowsCut& cut);

}  // namespace moraine::cpu
