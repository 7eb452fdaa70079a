// Tasks of products over rows: as many as there are threads for, of panels that stay in L2, or of many that come from
// memory.
#include "kernels/cpu/linear_cut.h"

#include <algorithm>

#include "kernels/ceil_div.h"

namespace moraine::cpu {
namespace {

constexpr int64_t kTaskPanels = 128;                   // of a task of one row tile: as many sums
constexpr int64_t kWaitingPanels = 32 * kMaxRowTiles;  // of all row tiles of a task
constexpr int64_t kTogether = 4;      // panels that a tile of few rows takes; a task has a multiple
constexpr int64_t kPartPanels = 32;   // of a task whose tiles take turns at parts of panels
constexpr int64_t kMinPartTiles = 2;  // fewer do not pay for it
constexpr int64_t kEnoughTasks = 4;   // of a thread: few are idle during the last ones
constexpr double kTaskCost = 40e3;    // of step_cost: about 5 us, a loop's start is 1 to 3
constexpr double kByteCost = 0.6;     // of a byte of a pack, in the same: 13 GB/s

// What there is to cut.
struct Whole {
  int64_t panels;      // of a group
  int64_t tiles;       // of all groups
  int64_t most_rows;   // of a group
  int64_t most_tiles;  // of a group
  int64_t groups;      // that have rows
};

Whole whole_of(const RowsProduct& p, const LinearEngine& e) {
  Whole w = {
      .panels = ceil_div(p.w.n, kPanel), .tiles = 0, .most_rows = 1, .most_tiles = 1, .groups = 0};
  for (int64_t g = 0; g < p.w.groups; ++g) {
    const int64_t here = p.rows[g + 1] - p.rows[g];
    w.groups += here > 0 ? 1 : 0;
    w.tiles += ceil_div(here, e.tile_rows), w.most_rows = std::max(w.most_rows, here);
  }
  w.most_tiles = ceil_div(w.most_rows, e.tile_rows);
  return w;
}

// Tasks to cut it into. A tile of one row costs about as much as one of four: it waits for the weights.
int64_t wanted_tasks(const RowsProduct& p, const LinearEngine& e, const Whole& w, int threads) {
  const int64_t steps = std::max<int64_t>(1, ceil_div(p.w.k, e.row_step));
  const double products = static_cast<double>(w.tiles) * e.step_cost,
               bytes = is_far(p.w, e) ? static_cast<double>(w.groups * e.step_bytes) : 0,
               cost = static_cast<double>(w.panels * steps) * std::max(products, bytes * kByteCost);
  return std::clamp<int64_t>(static_cast<int64_t>(cost / kTaskCost), 1,
                             threads == 1 ? 1 : 8 * threads);
}

// Tasks of about so many panels, `wanted` of them at least; of fewer, rather than of fewer than `least` tiles.
RowsCut cut_by(const Whole& w, int64_t wanted, int64_t block_panels, int64_t least) {
  const int64_t together = std::min(block_panels, kTogether);
  int64_t blocks = ceil_div(w.panels, (block_panels + together / 2) / together * together);
  if (w.tiles * blocks < wanted * least) {
    blocks = std::min(ceil_div(wanted * least, w.tiles),
                      std::max<int64_t>(blocks, w.panels / kTogether));
  }
  const int64_t row_tiles =
      std::clamp<int64_t>(w.tiles * blocks / wanted, 1, std::min(w.most_tiles, kMaxRowTiles));
  return {blocks, together, row_tiles, false};
}

}  // namespace

bool is_far(const PackedMatrix& w, const LinearEngine& e) {
  return packed_bytes(w) > e.cache_bytes;
}

bool streams(const RowsProduct& p, const LinearEngine& e) {
  return e.ahead_rows > 0 && is_far(p.w, e);
}

bool by_parts(const RowsProduct& p, const LinearEngine& e, int64_t tiles) {
  if (e.parts.sum == 0 || p.w.k == 0) return false;
  const int64_t bytes = packed_bytes(p.w);
  return tiles >= kMinPartTiles && (e.parts.widen != nullptr || bytes > e.right_bytes);
}

RowsCut choose_cut(const RowsProduct& p, const LinearEngine& e, int threads) {
  const Whole w = whole_of(p, e);
  if (w.tiles == 0) return {1, 1, 1, false};
  const int64_t wanted = wanted_tasks(p, e, w, threads);
  if (by_parts(p, e, w.most_tiles)) {
    RowsCut cut = cut_by(w, wanted, kPartPanels, std::min(w.most_tiles, kMinPartTiles));
    cut.parts = by_parts(p, e, cut.row_tiles);  // many threads may leave too few tiles to each
    if (cut.parts) return cut;
  }
  const int64_t steps = std::max<int64_t>(1, ceil_div(p.w.k, e.row_step));
  int64_t block_panels = std::max<int64_t>(
      1, e.right_bytes / (e.step_bytes * std::min(steps, e.sum_block / e.row_step)));
  // What is streamed need not stay; but nothing is asked for before a task begins, so these are large.
  const bool streamed =
      streams(p, e) && w.most_rows >= e.ahead_rows && w.most_tiles <= kMaxTilesAtOnce;
  if (streamed) block_panels = kTaskPanels / w.most_tiles;
  // Sums that wait for the next block of the sum have to have room.
  if (p.w.k > e.sum_block)
    block_panels = std::min(block_panels, kWaitingPanels / std::min(w.most_tiles, kMaxRowTiles));
  if (streamed) {  // all tiles of a group take a panel while it is there, if that keeps all threads busy
    Whole groups = w;
    groups.tiles = w.groups, groups.most_tiles = 1;
    RowsCut cut = cut_by(groups, wanted, block_panels, 1);
    const int64_t tasks = w.groups * cut.column_blocks;
    if (tasks % threads == 0 || tasks >= kEnoughTasks * threads) {
      cut.row_tiles = w.most_tiles;
      return cut;
    }
  }
  return cut_by(w, wanted, block_panels, 1);
}

int64_t waiting_bytes(const RowsProduct& p, const LinearEngine& e, const RowsCut& cut) {
  if (p.w.k <= e.sum_block) return 0;
  const int64_t units = ceil_div(ceil_div(p.w.n, kPanel), cut.together),
                columns = waiting_width(ceil_div(units, cut.column_blocks) * cut.together);
  return cut.row_tiles * e.tile_rows * columns * int64_t{sizeof(float)};
}

}  // namespace moraine::cpu
