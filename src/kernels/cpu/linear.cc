// Dense products over rows: tasks of (group, row block, column block), dealt to whoever is free.
#include "kernels/linear.h"

#include <algorithm>

#include "kernels/cpu/linear_engine.h"
#include "kernels/cpu/linear_rows.h"
#include "kernels/isa.h"

namespace moraine::cpu {
namespace {

constexpr int64_t kL2Words = 128 << 10;  // of right panels a task keeps in L2: half of 1 MiB
constexpr int64_t kMaxRowTiles =
    16;  // row tiles of a task: 224 rows x 256 columns of sums in scratch
constexpr double kTaskCost =
    40e3;  // multiply-adds of whole vectors: about 5 us, a loop's start is 1 to 3

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
  const double cost = static_cast<double>(tiles * panels * 2 * steps) * 8;
  const int64_t wanted = std::clamp<int64_t>(static_cast<int64_t>(cost / kTaskCost), 1,
                                             threads == 1 ? 1 : 8 * threads);
  const int64_t block_panels =
      std::max<int64_t>(1, kL2Words / (kPanel * std::min(steps, kBlockWords)));
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
    const int64_t width = (b.panel1 - b.panel0) * kPanel;
    int64_t k0 = 0;
    do {
      const int64_t k1 = std::min(k0 + e_.sum_block, p_.w.k);
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t r0 = b.row0 + even_begin(b.row1 - b.row0, tiles, tile);
        const int64_t r1 = b.row0 + even_begin(b.row1 - b.row0, tiles, tile + 1);
        // With one block of the sum, a tile is finished before the next begins: it stays in L1.
        float* sums = scratch.sums + (p_.w.k <= e_.sum_block ? 0 : (r0 - b.row0) * width);
        run_tile(b, r0, r1, k0, k1, scratch.panel, sums);
      }
      k0 = k1;
    } while (k0 < p_.w.k);
  }

 private:
  void run_tile(const Block& b, int64_t r0, int64_t r1, int64_t k0, int64_t k1, void* panel,
                float* sums) const {
    // Of a symmetric result, only panels that reach the diagonal or lie above it.
    const int64_t first = p_.symmetric ? std::max(b.panel0, r0 / kPanel) : b.panel0;
    if (first >= b.panel1) return;
    const int64_t column = first * kPanel, columns = std::min(b.panel1 * kPanel, p_.w.n) - column;
    const int64_t element = dtype_bytes(p_.x.dtype), word = 4;
    e_.copy_rows({.panel = panel,
                  .from = static_cast<const uint8_t*>(p_.x.data) + (r0 * p_.w.k + k0) * element,
                  .dtype = p_.x.dtype,
                  .stride = p_.w.k,
                  .rows = r1 - r0,
                  .sum = k1 - k0});
    const int64_t pack_step = kPanel * word, b_stride = steps_words() * pack_step;
    const int64_t pack_panel = b.group * panels_ + first;
    float* c = sums;
    int64_t c_stride = (b.panel1 - first) * kPanel;
    const bool direct = finishes_in_place() && columns % kPanel == 0;
    if (direct) {
      c = static_cast<float*>(p_.y.data) + r0 * p_.w.n + column;
      c_stride = p_.w.n;
    }
    e_.row_tile({.a = panel,
                 .b = static_cast<const uint8_t*>(p_.w.data) + pack_panel * b_stride +
                      k0 / e_.row_step * pack_step,
                 .b_stride = b_stride,
                 .panels = b.panel1 - first,
                 .steps = ceil_div(k1 - k0, e_.row_step),
                 .c = c,
                 .c_stride = c_stride,
                 .rows = r1 - r0,
                 .add = k0 > 0});
    if (!direct && k1 == p_.w.k) finish_tile(b, r0, r1, column, columns, sums, c_stride);
  }

  bool finishes_in_place() const {
    return p_.y.dtype == DType::kF32 && p_.bias == nullptr && p_.alpha == 1 && p_.y0 == nullptr;
  }

  int64_t steps_words() const { return steps_; }

  void finish_tile(const Block& b, int64_t r0, int64_t r1, int64_t column, int64_t columns,
                   const float* sums, int64_t c_stride) const {
    const int64_t at = r0 * p_.w.n + column;
    e_.finish({.y = static_cast<uint8_t*>(p_.y.data) + at * dtype_bytes(p_.y.dtype),
               .dtype = p_.y.dtype,
               .y_stride = p_.w.n,
               .c = sums,
               .c_stride = c_stride,
               .rows = r1 - r0,
               .columns = columns,
               .bias = p_.bias == nullptr ? nullptr : p_.bias + b.group * p_.w.n + column,
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
  const LinearEngine* bf16 = bf16_engine();
  if (dtype == DType::kBF16 && isa() == Isa::kAvx512Bf16 && bf16 != nullptr) return *bf16;
  return f32_engine(dtype);
}

void run_rows_product(Context& ctx, const RowsProduct& p) {
  const LinearEngine& e = linear_engine(p.w.dtype);
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
  run_rows_product(ctx, {.y = a.y,
                         .x = a.x,
                         .w = a.w,
                         .bias = data_or_null(a.bias),
                         .rows = a.rows,
                         .alpha = 1,
                         .beta = 0,
                         .y0 = nullptr,
                         .symmetric = false});
}

void grouped_linear_backward_input(Context& ctx, const GroupedLinearBackwardInput& a) {
  run_rows_product(ctx, {.y = a.dx,
                         .x = a.dy,
                         .w = a.w,
                         .bias = nullptr,
                         .rows = a.rows,
                         .alpha = 1,
                         .beta = 0,
                         .y0 = nullptr,
                         .symmetric = false});
}

}  // namespace moraine::cpu
