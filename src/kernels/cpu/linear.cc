// Dense products over rows: tasks of (group, row block, column block), dealt to whoever is free.
#include "kernels/linear.h"

#include <algorithm>

#include "kernels/ceil_div.h"
#include "kernels/cpu/linear_cut.h"
#include "kernels/cpu/linear_engine.h"
#include "kernels/cpu/linear_quantised.h"
#include "kernels/cpu/linear_rows.h"
#include "kernels/isa.h"

namespace moraine::cpu {
namespace {

constexpr int64_t kListPanels = 8;  // of a task that computes some panels only
constexpr int64_t kTurns = 2;       // panels from memory that take turns at their parts
constexpr int64_t kFinishPanels =
    8;  // of 32 rows: a tile's sums stay in L1 until they are finished: 32 KiB

// Whether rows of x are as a row panel has them: of whole dots, on cache lines.
bool reads_in_place(const RowsProduct& p, const LinearEngine& e) {
  constexpr int64_t kLine = 64;
  return e.in_place && p.x.dtype == DType::kBF16 &&
         p.w.k * dtype_bytes(DType::kBF16) % kLine == 0 &&
         reinterpret_cast<uintptr_t>(p.x.data) % kLine == 0;
}

// One task: rows [row0, row1) of the group, panels [panel0, panel1), of the product or of a list.
struct Block {
  int64_t group, row0, row1, panel0, panel1;
};

// Rows of tiles, sums of a block, in the scratch of a worker.
struct Scratch {
  uint8_t* panels;
  float *chains, *part;  // of by_parts()
  float* sums;
};

Scratch scratch_of(Context& ctx, int worker) {
  uint8_t* const begin = ctx.worker_scratch<uint8_t>(worker);
  auto* const behind = reinterpret_cast<float*>(begin + kRowsBytes);
  return {begin, behind, behind + kChainFloats, behind + kPartFloats};
}

class RowsTask {
 public:
  // `parts`: tasks of enough tiles take panels in parts. `list`: panels that blocks count, ascending; empty: all.
  RowsTask(const RowsProduct& p, const LinearEngine& e, bool parts,
           std::span<const int32_t> list = {})
      : p_(p),
        e_(e),
        list_(list),
        steps_(ceil_div(p.w.k, e.row_step)),
        panels_(ceil_div(p.w.n, kPanel)),
        far_(is_far(p.w, e)),
        streams_(streams(p, e)),
        parts_(parts),
        in_place_(reads_in_place(p, e)) {
    const int64_t tiles = e.parts.sum > 0 ? kMaxRowTiles : kMaxTilesAtOnce;
    MR_CHECK(tiles * e.tile_rows * kRowWords * 4 <= kRowsBytes && e.parts.sum <= kMaxPartSum);
    MR_CHECK(!e.rounds || (e.parts.sum == 0 && e.streamed.rows == 0));
  }

  void run(const Block& b, const Scratch& scratch) const {
    const int64_t rows = b.row1 - b.row0, low = ceil_div(rows, e_.tile_rows);
    const bool streams = streams_ && rows >= e_.ahead_rows && low <= kMaxTilesAtOnce,
               parts = parts_ && by_parts(p_, e_, low), high = streams && e_.streamed.rows > 0;
    const int64_t tiles = high ? ceil_div(rows, e_.streamed.rows) : low,
                  block = high && in_place_ ? p_.w.k : e_.sum_block;
    int64_t k0 = 0;
    do {
      const int64_t k1 = std::min(k0 + block, p_.w.k), at_once = streams || parts ? tiles : 1;
      for (int64_t tile = 0; tile < tiles; tile += at_once) {
        Piece pieces[kMaxRowTiles];
        for (int64_t i = 0; i < at_once; ++i) {
          pieces[i] = {.row0 = b.row0 + runs_begin(rows, e_.row_run, tiles, tile + i),
                       .row1 = b.row0 + runs_begin(rows, e_.row_run, tiles, tile + i + 1),
                       .k0 = k0,
                       .k1 = k1,
                       .streamed = high};
        }
        const std::span<Piece> tiles_at_once(pieces, static_cast<size_t>(at_once));
        parts ? run_parts(b, tiles_at_once, scratch)
              : run_tiles(b, tiles_at_once, scratch, streams);
      }
      k0 = k1;
    } while (k0 < p_.w.k);
  }

 private:
  // A tile of rows, a block of the sum, and some panels.
  struct Piece {
    int64_t row0, row1, k0, k1;
    bool streamed;  // takes LinearEngine::streamed
    int64_t panel0 = 0, panel1 = 0;
  };

  // `streams`: a panel is there for all tiles, and the next one asked for; else each tile finds them in L2.
  void run_tiles(const Block& b, std::span<Piece> tiles, const Scratch& scratch,
                 bool streams) const {
    if (first_panel(b, tiles[0]) >= b.panel1) return;
    if (!in_place_) {
      for (size_t i = 0; i < tiles.size(); ++i) copy_rows(tiles[i], row_panel(scratch, i));
    }
    // Sums wait for the next block of the sum, each in its place, or are finished at once, a few
    // panels at a time, from the same place, where they are not made in y.
    const bool wait = tiles[0].k1 - tiles[0].k0 < p_.w.k, direct = sums_in_y(p_.w.n);
    const int64_t width = waiting_width(b.panel1 - b.panel0),
                  finish =
                      std::max(kFinishPanels, kFinishPanels * kMaxTileRows / (b.row1 - b.row0));
    const int64_t step = streams || !list_.empty() ? 1 : wait || direct ? b.panel1 : finish;
    NextRows next;
    if (e_.turn_steps > 0 && !streams && tiles.size() == 1) next = rows_after(b, tiles[0]);
    int64_t panel1 = 0;
    for (int64_t panel = first_panel(b, tiles[0]); panel < b.panel1; panel = panel1) {
      panel1 = std::min(panel + step, b.panel1);
      for (size_t i = 0; i < tiles.size(); ++i) {
        Piece& piece = tiles[i];
        piece.panel0 = std::max(panel, first_panel(b, piece));
        piece.panel1 = panel1;
        if (piece.panel0 >= panel1) continue;
        float* sums = scratch.sums;
        if (wait) sums += (piece.row0 - b.row0) * width + (piece.panel0 - b.panel0) * kPanel;
        const Ahead ahead = streams ? ahead_of(b, piece, i, tiles.size()) : Ahead();
        multiply(b.group, piece,
                 {.sums = sums,
                  .sums_stride = wait ? width : waiting_width(finish),
                  .rows = in_place_ ? rows_of(piece) : row_panel(scratch, i),
                  .ahead = ahead,
                  .next = next.any() ? &next : nullptr});
      }
    }
  }

  // Each panel in parts that stay in L1 while all tiles pass. Panels from memory take turns, so there are two long
  // streams of lines: 24 rows of bf16 are 1.1 times as fast with it, of f32 1.2 (Zen 3). With more turns f32's parts,
  // which often lie 64 KiB apart, do not stay in L2.
  void run_parts(const Block& b, std::span<Piece> tiles, const Scratch& scratch) const {
    const int64_t panel_begin = first_panel(b, tiles[0]), sum = e_.parts.sum;
    if (panel_begin >= b.panel1) return;
    for (size_t i = 0; i < tiles.size(); ++i) copy_rows(tiles[i], row_panel(scratch, i));
    const int64_t chains = static_cast<int64_t>(tiles.size()) * e_.tile_rows * kPanel,
                  at_once = far_ && list_.empty() ? kTurns : 1;
    MR_CHECK(at_once * chains <= kChainFloats);
    for (int64_t panel0 = panel_begin; panel0 < b.panel1; panel0 += at_once) {
      const int64_t panel1 = std::min(panel0 + at_once, b.panel1);
      for (int64_t k0 = tiles[0].k0; k0 < tiles[0].k1; k0 += sum) {
        const Part part = {k0, std::min(k0 + sum, tiles[0].k1)};
        const AskPanels next = after_part(b, tiles[0], part, {panel0, panel1});
        for (int64_t panel = panel0; panel < panel1; ++panel)
          run_part(b, tiles, scratch,
                   {.part = part,
                    .panel = panel,
                    .chains = scratch.chains + (panel - panel0) * chains,
                    .next = next,
                    .number = panel - panel0,
                    .of = panel1 - panel0});
      }
    }
  }

  // Of the sum.
  struct Part {
    int64_t k0, k1;
  };
  // Number `number` of `of` panels that take turns at a part.
  struct Turn {
    Part part;
    int64_t panel;
    float* chains;
    const AskPanels& next;
    int64_t number, of;
  };

  void run_part(const Block& b, std::span<Piece> tiles, const Scratch& scratch,
                const Turn& turn) const {
    for (Piece& piece : tiles) piece.panel0 = turn.panel, piece.panel1 = turn.panel + 1;
    const Part& part = turn.part;
    const bool wait = p_.w.k > e_.sum_block;
    const int64_t width = waiting_width(b.panel1 - b.panel0), sum0 = tiles[0].k0,
                  count = static_cast<int64_t>(tiles.size());
    const uint8_t* right = right_panel(b.group, tiles[0].panel0, part.k0);
    int64_t steps = ceil_div(part.k1 - part.k0, e_.row_step);
    if (e_.parts.widen != nullptr) {
      e_.parts.widen(scratch.part, right, steps);
      right = reinterpret_cast<const uint8_t*>(scratch.part), steps *= e_.row_step;
    }
    for (int64_t i = 0; i < count; ++i) {
      const auto number = static_cast<size_t>(i);
      const Piece& piece = tiles[number];
      turn.next.share(turn.number * count + i, turn.of * count);
      if (first_panel(b, piece) > piece.panel0) continue;
      const int64_t at = i * e_.tile_rows * kPanel;
      float* sums = scratch.sums;
      sums += wait ? (piece.row0 - b.row0) * width + (piece.panel0 - b.panel0) * kPanel : at;
      const Sums to = sums_of(piece, {.sums = sums, .sums_stride = wait ? width : kPanel});
      e_.parts.tile(
          {.a = reinterpret_cast<const float*>(row_panel(scratch, number)) + (part.k0 - sum0),
           .b = right,
           .b_stride = 0,
           .panels = 1,
           .steps = steps,
           .c = to.c,
           .c_stride = to.stride,
           .rows = piece.row1 - piece.row0,
           .add = piece.k0 > 0,
           .chain = turn.chains + at,
           .begins = part.k0 == sum0,
           .ends = part.k1 == piece.k1});
      if (part.k1 == p_.w.k && !to.direct)
        finish_piece(b.group, piece, to.columns, sums, to.stride);
    }
  }

  // What the panels that take turns, [first, second), need next of the pack: their next part, or that of the panels
  // behind them.
  AskPanels after_part(const Block& b, const Piece& piece, const Part& part,
                       std::pair<int64_t, int64_t> turns) const {
    const auto [panel0, panel1] = turns;
    const bool last = part.k1 == piece.k1;
    const int64_t k0 = last ? piece.k0 : part.k1, k1 = std::min(k0 + e_.parts.sum, piece.k1),
                  next0 = last ? panel1 : panel0,
                  panels = std::min(next0 + panel1 - panel0, b.panel1) - next0;
    if (panels == 0) return {nullptr, 0, 0, 0};
    return {right_panel(b.group, next0, k0), steps_ * e_.step_bytes, panels,
            ceil_div(k1 - k0, e_.row_step) * e_.step_bytes};
  }

  const void* rows_of(const Piece& piece) const {
    return static_cast<const uint8_t*>(p_.x.data) +
           (piece.row0 * p_.w.k + piece.k0) * dtype_bytes(p_.x.dtype);
  }

  void copy_rows(const Piece& piece, void* panel) const {
    e_.copy_rows({.panel = panel,
                  .from = rows_of(piece),
                  .dtype = p_.x.dtype,
                  .stride = p_.w.k,
                  .rows = piece.row1 - piece.row0,
                  .sum = piece.k1 - piece.k0});
  }

  // What the tile behind this one takes: the next rows of the block, or its first ones of the next block of the sum.
  NextRows rows_after(const Block& b, const Piece& piece) const {
    const bool last = piece.row1 == b.row1;
    const int64_t row = last ? b.row0 : piece.row1,
                  rows = std::min(piece.row1 - piece.row0, b.row1 - row),
                  k0 = last ? piece.k1 : piece.k0, k1 = std::min(k0 + e_.sum_block, p_.w.k);
    if (k0 == p_.w.k) return {};
    const int64_t steps = ceil_div(piece.k1 - piece.k0, e_.row_step),
                  turns = (b.panel1 - first_panel(b, piece)) * ceil_div(steps, e_.turn_steps);
    NextRows next = {.x = {part_of(p_.x, row, rows, k0, k1), turns}, .y = {}};
    // Sums that are made in y are in cache from the first block of the sum on.
    const bool writes = sums_in_y(p_.w.n) ? k0 == 0 : k1 == p_.w.k;
    const int64_t column0 = first_panel(b, row) * kPanel,
                  column1 = std::min(b.panel1 * kPanel, p_.w.n);
    if (writes && list_.empty() && column0 < column1)
      next.y = {part_of(p_.y, row, rows, column0, column1), turns};
    return next;
  }

  static RowsAhead part_of(const Tensor& m, int64_t row, int64_t rows, int64_t column0,
                           int64_t column1) {
    const int64_t size = dtype_bytes(m.dtype), stride = m.dims[1] * size;
    return {.first = static_cast<const uint8_t*>(m.data) + row * stride + column0 * size,
            .rows = rows,
            .bytes = (column1 - column0) * size,
            .stride = stride};
  }

  uint8_t* row_panel(const Scratch& scratch, size_t i) const {
    return scratch.panels + static_cast<int64_t>(i) * e_.tile_rows * kRowWords * 4;
  }

  // Of a symmetric result, only panels that reach the diagonal or lie above it.
  int64_t first_panel(const Block& b, const Piece& piece) const {
    return first_panel(b, piece.row0);
  }
  int64_t first_panel(const Block& b, int64_t row) const {
    return p_.symmetric ? std::max(b.panel0, row / kPanel) : b.panel0;
  }

  int64_t panel_at(int64_t index) const {
    return list_.empty() ? index : list_[static_cast<size_t>(index)];
  }

  const uint8_t* right_panel(int64_t group, int64_t index, int64_t k) const {
    return static_cast<const uint8_t*>(p_.w.data) +
           ((group * panels_ + panel_at(index)) * steps_ + k / e_.row_step) * e_.step_bytes;
  }

  // The share of tile i of n in asking for what comes after the piece: the next panel, or the first one of the next
  // block of the sum.
  Ahead ahead_of(const Block& b, const Piece& piece, size_t i, size_t n) const {
    const bool last = piece.panel1 == b.panel1;
    const int64_t k0 = last ? piece.k1 : piece.k0,
                  k1 = last ? std::min(k0 + e_.sum_block, p_.w.k) : piece.k1;
    if (k0 == p_.w.k) return {};
    const int64_t bytes = ceil_div(k1 - k0, e_.row_step) * e_.step_bytes;
    const int64_t stream = ceil_div(bytes, e_.ahead_streams * Ahead::kLine);
    const int64_t at = even_begin(stream, static_cast<int64_t>(n), static_cast<int64_t>(i)),
                  end = even_begin(stream, static_cast<int64_t>(n), static_cast<int64_t>(i) + 1);
    return {.data = right_panel(b.group, last ? b.panel0 : piece.panel1, k0) + at * Ahead::kLine,
            .stream = stream * Ahead::kLine,
            .lines = end - at,
            .part = n > 1};
  }

  // Where a piece is computed.
  struct Place {
    float* sums;
    int64_t sums_stride;
    const void* rows = nullptr;
    Ahead ahead = {};
    NextRows* next = nullptr;
  };

  // Where the sums of a piece go: to y, as c or as `rounded`, if the tile can leave them there as they are to be.
  struct Sums {
    float* c;
    BF16* rounded;
    int64_t stride, columns;
    bool direct;
  };
  Sums sums_of(const Piece& piece, const Place& place) const {
    const int64_t column = panel_at(piece.panel0) * kPanel,
                  wide = (piece.panel1 - piece.panel0) * kPanel,
                  columns = std::min(wide, p_.w.n - column);
    if (!sums_in_y(columns)) return {place.sums, nullptr, place.sums_stride, columns, false};
    const int64_t at = piece.row0 * p_.w.n + column;
    const bool f32 = p_.y.dtype == DType::kF32;
    return {f32 ? static_cast<float*>(p_.y.data) + at : nullptr,
            f32 ? nullptr : static_cast<BF16*>(p_.y.data) + at, p_.w.n, columns, true};
  }

  void multiply(int64_t group, const Piece& piece, const Place& place) const {
    const Sums to = sums_of(piece, place);
    const auto tile = piece.streamed ? e_.streamed.tile : e_.row_tile;
    tile({.a = place.rows,
          .b = right_panel(group, piece.panel0, piece.k0),
          .b_stride = steps_ * e_.step_bytes,
          .panels = piece.panel1 - piece.panel0,
          .steps = ceil_div(piece.k1 - piece.k0, e_.row_step),
          .c = to.c,
          .c_stride = to.stride,
          .rows = piece.row1 - piece.row0,
          .add = piece.k0 > 0,
          .far = far_,
          .ahead = place.ahead,
          .next = place.next,
          .rounded = to.rounded,
          .a_row = in_place_ ? p_.w.k * dtype_bytes(p_.x.dtype) : 4 * kRowWords});
    if (!to.direct && piece.k1 == p_.w.k)
      finish_piece(group, piece, to.columns, place.sums, place.sums_stride);
  }

  // Whether nothing is to be done to the sums of so many columns, which are whole panels, or rounding by the tile.
  bool sums_in_y(int64_t columns) const {
    const bool kept = p_.y.dtype == DType::kF32 || (e_.rounds && p_.w.k <= e_.sum_block);
    return kept && p_.bias == nullptr && p_.alpha == 1 && p_.y0 == nullptr && columns % kPanel == 0;
  }

  void finish_piece(int64_t group, const Piece& piece, int64_t columns, const float* sums,
                    int64_t sums_stride) const {
    const int64_t column = panel_at(piece.panel0) * kPanel, at = piece.row0 * p_.w.n + column;
    e_.finish({.y = static_cast<uint8_t*>(p_.y.data) + at * dtype_bytes(p_.y.dtype),
               .dtype = p_.y.dtype,
               .y_stride = p_.w.n,
               .c = sums,
               .c_stride = sums_stride,
               .rows = piece.row1 - piece.row0,
               .columns = columns,
               .bias = p_.bias == nullptr ? nullptr : p_.bias + group * p_.w.n + column,
               .alpha = p_.alpha,
               .beta = p_.beta,
               .y0 = p_.y0 == nullptr ? nullptr : p_.y0 + at});
  }

  const RowsProduct& p_;
  const LinearEngine& e_;
  const std::span<const int32_t> list_;
  const int64_t steps_, panels_;
  const bool far_, streams_, parts_, in_place_;
};

const float* data_or_null(const Tensor& t) {
  return t.empty() ? nullptr : static_cast<const float*>(t.data);
}

}  // namespace

const LinearEngine& linear_engine(DType dtype) {
  MR_CHECK(dtype == DType::kF32 || dtype == DType::kBF16, "the cpu backend has no %s",
           dtype_name(dtype));
  if (dtype == DType::kBF16 && isa() == Isa::kAmx) return *amx_engine();
  if (dtype == DType::kBF16 && isa() == Isa::kAvx512Bf16) return *bf16_engine();
  return f32_engine(dtype);
}

LinearEngine linear_engine(const PackedMatrix& w) {
  return w.format == WeightFormat::kPlain ? linear_engine(w.dtype) : quantised_engine(w.format);
}

void run_rows_product(Context& ctx, const RowsProduct& p, const LinearEngine& e) {
  const RowsCut cut = choose_cut(p, e, ctx.pool->threads());
  const int64_t waiting = waiting_bytes(p, e, cut);
  MR_CHECK(waiting <= kWaitingBytes, "%ld bytes of sums", static_cast<long>(waiting));
  const RowsTask rows_task(p, e, cut.parts);
  const int64_t panels = ceil_div(p.w.n, kPanel), units = ceil_div(panels, cut.together);
  const auto row_blocks = [&](int64_t g) {
    return ceil_div(ceil_div(p.rows[g + 1] - p.rows[g], e.tile_rows), cut.row_tiles);
  };
  int64_t tasks = 0;
  for (int64_t g = 0; g < p.w.groups; ++g) tasks += row_blocks(g) * cut.column_blocks;
  ctx.pool->parallel_for(tasks, [&](int64_t task, int worker) {
    int64_t g = 0;
    while (task >= row_blocks(g) * cut.column_blocks) task -= row_blocks(g++) * cut.column_blocks;
    // Row blocks are the inner index: the column block stays in this core's L2.
    const int64_t blocks = row_blocks(g), column = task / blocks, row = task % blocks;
    const int64_t rows = p.rows[g + 1] - p.rows[g];
    const Block block = {
        .group = g,
        .row0 = p.rows[g] + runs_begin(rows, e.row_run, blocks, row),
        .row1 = p.rows[g] + runs_begin(rows, e.row_run, blocks, row + 1),
        .panel0 = even_begin(units, cut.column_blocks, column) * cut.together,
        .panel1 =
            std::min(panels, even_begin(units, cut.column_blocks, column + 1) * cut.together)};
    rows_task.run(block, scratch_of(ctx, worker));
  });
}

void grouped_linear_forward(Context& ctx, const GroupedLinearForward& a) {
  run_rows_product(ctx,
                   {.y = a.y, .x = a.x, .w = a.w, .rows = a.rows, .bias = data_or_null(a.bias)},
                   linear_engine(a.w));
}

void linear_forward_panels(Context& ctx, const LinearForwardPanels& a) {
  const LinearEngine e = linear_engine(a.w);
  const int64_t T = a.x.dims[0], rows[2] = {0, T};
  const RowsProduct p = {.y = a.y, .x = a.x, .w = a.w, .rows = rows};
  const RowsTask rows_task(p, e, true, a.panels);
  const auto panels = static_cast<int64_t>(a.panels.size());
  const int64_t blocks = ceil_div(ceil_div(T, e.tile_rows), kMaxRowTiles),
                runs = std::max(std::min<int64_t>(panels, 4 * ctx.pool->threads()),
                                ceil_div(panels, kListPanels));
  ctx.pool->parallel_for(blocks * runs, [&](int64_t task, int worker) {
    const int64_t run = task / blocks, row = task % blocks;
    const Block block = {.group = 0,
                         .row0 = runs_begin(T, e.row_run, blocks, row),
                         .row1 = runs_begin(T, e.row_run, blocks, row + 1),
                         .panel0 = even_begin(panels, runs, run),
                         .panel1 = even_begin(panels, runs, run + 1)};
    rows_task.run(block, scratch_of(ctx, worker));
  });
}

void grouped_linear_backward_input(Context& ctx, const GroupedLinearBackwardInput& a) {
  run_rows_product(ctx, {.y = a.dx, .x = a.dy, .w = a.w, .rows = a.rows}, linear_engine(a.w));
}

}  // namespace moraine::cpu
