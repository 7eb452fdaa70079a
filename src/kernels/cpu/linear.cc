// Dense products over rows: tasks of (group, row block, column block), dealt to whoever is free.
#include "kernels/linear.h"

#include <algorithm>

#include "kernels/cpu/linear_engine.h"
#include "kernels/cpu/linear_quantised.h"
#include "kernels/cpu/linear_rows.h"
#include "kernels/isa.h"

namespace moraine::cpu {
namespace {

constexpr int64_t kL2Bytes = 512 << 10;  // of right panels a task keeps in L2: half of 1 MiB
constexpr int64_t kMaxRowTiles = 16;     // of a task: 512 rows x 256 columns of sums in scratch
constexpr int64_t kFinishPanels = 8;     // a tile's sums stay in L1 until they are finished: 32 KiB
constexpr double kTaskCost = 40e3;       // of step_cost: about 5 us, a loop's start is 1 to 3

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How the rows and columns of all groups are cut. Results do not depend on it.
struct Cut {
  int64_t column_blocks;
  int64_t row_tiles;  // of a task, at most
};

Cut choose_cut(const RowsProduct& p, const LinearEngine& e, int threads) {
  const int64_t steps = std::max<int64_t>(1, ceil_div(p.w.k, e.row_step));
  const int64_t panels = ceil_div(p.w.n, kPanel);
  int64_t tiles = 0;
  for (int64_t g = 0; g < p.w.groups; ++g)
    tiles += ceil_div(p.rows[g + 1] - p.rows[g], e.tile_rows);
  // A tile of one row costs about as much as one of four: it waits for the weights.
  const double cost = static_cast<double>(tiles * panels * steps) * e.step_cost;
  const int64_t wanted = std::clamp<int64_t>(static_cast<int64_t>(cost / kTaskCost), 1,
                                             threads == 1 ? 1 : 8 * threads);
  const int64_t block_panels =
      std::max<int64_t>(1, kL2Bytes / (e.step_bytes * std::min(steps, e.sum_block / e.row_step)));
  int64_t blocks = ceil_div(panels, block_panels);
  if (tiles * blocks < wanted) {
    blocks = std::min(ceil_div(wanted, tiles), std::max<int64_t>(blocks, panels / 4));
  }
  const int64_t row_tiles = std::clamp<int64_t>(tiles * blocks / wanted, 1, kMaxRowTiles);
  return {blocks, row_tiles};
}

// One task: rows [row0, row1) of the group, panels [panel0, panel1).
struct Block {
  int64_t group, row0, row1, panel0, panel1;
};

// Rows of a tile, sums of a block, in the scratch of a worker.
struct Scratch {
  void* panel;
  float* sums;
};

class RowsTask {
 public:
  RowsTask(const RowsProduct& p, const LinearEngine& e)
      : p_(p), e_(e), steps_(ceil_div(p.w.k, e.row_step)), panels_(ceil_div(p.w.n, kPanel)) {}

  void run(const Block& b, const Scratch& scratch) const {
    const int64_t tiles = ceil_div(b.row1 - b.row0, e_.tile_rows);
    int64_t k0 = 0;
    do {
      const int64_t k1 = std::min(k0 + e_.sum_block, p_.w.k);
      for (int64_t tile = 0; tile < tiles; ++tile) {
        run_tile(b,
                 {.row0 = b.row0 + even_begin(b.row1 - b.row0, tiles, tile),
                  .row1 = b.row0 + even_begin(b.row1 - b.row0, tiles, tile + 1),
                  .k0 = k0,
                  .k1 = k1},
                 scratch);
      }
      k0 = k1;
    } while (k0 < p_.w.k);
  }

 private:
  // A tile of rows, a block of the sum, and some panels.
  struct Piece {
    int64_t row0, row1, k0, k1;
    int64_t panel0 = 0, panel1 = 0;
  };

  void run_tile(const Block& b, Piece piece, const Scratch& scratch) const {
    // Of a symmetric result, only panels that reach the diagonal or lie above it.
    const int64_t first = p_.symmetric ? std::max(b.panel0, piece.row0 / kPanel) : b.panel0;
    if (first >= b.panel1) return;
    e_.copy_rows({.panel = scratch.panel,
                  .from = static_cast<const uint8_t*>(p_.x.data) +
                          (piece.row0 * p_.w.k + piece.k0) * dtype_bytes(p_.x.dtype),
                  .dtype = p_.x.dtype,
                  .stride = p_.w.k,
                  .rows = piece.row1 - piece.row0,
                  .sum = piece.k1 - piece.k0});
    // Sums wait for the next block of the sum, each in its place, or are finished at once, a few
    // panels at a time, from the same place.
    const bool wait = p_.w.k > e_.sum_block;
    const int64_t width = (b.panel1 - b.panel0) * kPanel, step = wait ? b.panel1 : kFinishPanels;
    for (piece.panel0 = first; piece.panel0 < b.panel1; piece.panel0 = piece.panel1) {
      piece.panel1 = std::min(piece.panel0 + step, b.panel1);
      float* sums = scratch.sums;
      if (wait) sums += (piece.row0 - b.row0) * width + (piece.panel0 - b.panel0) * kPanel;
      multiply(b.group, piece, scratch.panel, sums, wait ? width : kFinishPanels * kPanel);
    }
  }

  void multiply(int64_t group, const Piece& piece, const void* rows, float* sums,
                int64_t sums_stride) const {
    const int64_t column = piece.panel0 * kPanel,
                  columns = std::min(piece.panel1 * kPanel, p_.w.n) - column;
    const int64_t b_stride = steps_ * e_.step_bytes;
    float* c = sums;
    int64_t c_stride = sums_stride;
    const bool direct = finishes_in_place() && columns % kPanel == 0;
    if (direct) {
      c = static_cast<float*>(p_.y.data) + piece.row0 * p_.w.n + column;
      c_stride = p_.w.n;
    }
    e_.row_tile({.a = rows,
                 .b = static_cast<const uint8_t*>(p_.w.data) +
                      (group * panels_ + piece.panel0) * b_stride +
                      piece.k0 / e_.row_step * e_.step_bytes,
                 .b_stride = b_stride,
                 .panels = piece.panel1 - piece.panel0,
                 .steps = ceil_div(piece.k1 - piece.k0, e_.row_step),
                 .c = c,
                 .c_stride = c_stride,
                 .rows = piece.row1 - piece.row0,
                 .add = piece.k0 > 0});
    if (!direct && piece.k1 == p_.w.k) finish_piece(group, piece, columns, sums, sums_stride);
  }

  bool finishes_in_place() const {
    return p_.y.dtype == DType::kF32 && p_.bias == nullptr && p_.alpha == 1 && p_.y0 == nullptr;
  }

  void finish_piece(int64_t group, const Piece& piece, int64_t columns, const float* sums,
                    int64_t sums_stride) const {
    const int64_t column = piece.panel0 * kPanel, at = piece.row0 * p_.w.n + column;
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
  const int64_t steps_, panels_;
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
  const Cut cut = choose_cut(p, e, ctx.pool->threads());
  const RowsTask rows_task(p, e);
  const int64_t panels = ceil_div(p.w.n, kPanel);
  const auto row_blocks = [&](int64_t g) {
    return ceil_div(ceil_div(p.rows[g + 1] - p.rows[g], e.tile_rows), cut.row_tiles);
  };
  int64_t tasks = 0;
  for (int64_t g = 0; g < p.w.groups; ++g) tasks += row_blocks(g) * cut.column_blocks;
  ctx.pool->parallel_for(tasks, [&](int64_t task, int worker) {
    int64_t g = 0;
    while (task >= row_blocks(g) * cut.column_blocks) task -= row_blocks(g++) * cut.column_blocks;
    // Row blocks are the inner index: the column block stays in this core's L2.
    const int64_t parts = row_blocks(g), column = task / parts, part = task % parts;
    const int64_t rows = p.rows[g + 1] - p.rows[g];
    const Block block = {.group = g,
                         .row0 = p.rows[g] + even_begin(rows, parts, part),
                         .row1 = p.rows[g] + even_begin(rows, parts, part + 1),
                         .panel0 = even_begin(panels, cut.column_blocks, column),
                         .panel1 = even_begin(panels, cut.column_blocks, column + 1)};
    uint8_t* scratch = ctx.worker_scratch<uint8_t>(worker);
    rows_task.run(block, {scratch, reinterpret_cast<float*>(scratch + kRowPanelBytes)});
  });
}

void grouped_linear_forward(Context& ctx, const GroupedLinearForward& a) {
  run_rows_product(ctx,
                   {.y = a.y,
                    .x = a.x,
                    .w = a.w,
                    .bias = data_or_null(a.bias),
                    .rows = a.rows,
                    .alpha = 1,
                    .beta = 0,
                    .y0 = nullptr,
                    .symmetric = false},
                   linear_engine(a.w));
}

void grouped_linear_backward_input(Context& ctx, const GroupedLinearBackwardInput& a) {
  run_rows_product(ctx,
                   {.y = a.dx,
                    .x = a.dy,
                    .w = a.w,
                    .bias = nullptr,
                    .rows = a.rows,
                    .alpha = 1,
                    .beta = 0,
                    .y0 = nullptr,
                    .symmetric = false},
                   linear_engine(a.w));
}

}  // namespace moraine::cpu
