// Weight gradients: columns of dy against columns of x, summed over the rows of a group.
#include <algorithm>
#include <span>

#include "kernels/ceil_div.h"
#include "kernels/cpu/linear_columns.h"
#include "kernels/cpu/linear_engine.h"
#include "kernels/cpu/linear_rows.h"
#include "kernels/linear.h"

namespace moraine::cpu {
namespace {

constexpr int64_t kLeftBytes = 128
                               << 10;  // of left panels copied at a time: whole cache lines of dy
constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kSoonBytes = 32 << 10;  // more sums of a left panel are asked for into L2
constexpr int64_t kPanelPad = 64;  // bytes: panels a power of two apart would share cache sets
constexpr int64_t kMinLeftColumns = 112;  // of a task: fewer copy more than they multiply

// Steps of the column panels for `rows` rows.
int64_t column_steps(const LinearEngine& e, int64_t rows) {
  const int64_t steps = ceil_div(rows, e.column_step);
  return ceil_div(steps, e.column_round) * e.column_round;
}

// How the columns of a group's gradient are cut. Results do not depend on it.
class GradientCut {
 public:
  GradientCut(const GroupedLinearBackwardWeight& a, const LinearEngine& e, int threads)
      : rows_(a.rows),
        n_(a.dy.dims[1]),
        groups_(a.dw.dims[0]),
        wanted_(threads == 1 ? 1 : 4 * threads) {
    int64_t longest = 1;
    for (int64_t g = 0; g < groups_; ++g) longest = std::max(longest, rows(g));
    const int64_t steps = std::min(column_steps(e, longest), e.column_steps);
    right_ = std::max<int64_t>(1, ceil_div(a.x.dims[1], e.right_bytes / (4 * steps)));
  }

  // Of k columns, in every group: right panels of a task fit L2.
  int64_t right() const { return right_; }
  // Of n columns: more of a group that has more of the rows, so that none keeps one thread while others wait.
  int64_t left(int64_t g) const {
    const int64_t all = std::max<int64_t>(1, rows_[static_cast<size_t>(groups_)]);
    const int64_t wanted = ceil_div(wanted_ * rows(g), all * right_);
    return std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, n_ / kMinLeftColumns));
  }

 private:
  int64_t rows(int64_t g) const {
    const auto i = static_cast<size_t>(g);
    return rows_[i + 1] - rows_[i];
  }

  const std::span<const int64_t> rows_;
  const int64_t n_, groups_, wanted_;
  int64_t right_;
};

struct GradientBlock {
  int64_t group, n0, n1, k0, k1;
};

// One block of rows of one task.
class BlockTask {
 public:
  BlockTask(const GroupedLinearBackwardWeight& a, const LinearEngine& e, const GradientBlock& b,
            uint8_t* scratch)
      : a_(a), e_(e), b_(b), n_(a.dy.dims[1]), k_(a.x.dims[1]), scratch_(scratch) {}

  void run(int64_t t0, int64_t t1) const {
    const int64_t steps = column_steps(e_, t1 - t0);
    const Panels right = copied_right(steps, copy_of(a_.x, t0, t1, b_.k0, b_.k1 - b_.k0));
    uint8_t* rest = scratch_ + right.count * right.bytes;
    const int64_t panels = ceil_div(b_.n1 - b_.n0, e_.tile_rows);
    const int64_t groups = ceil_div(panels, std::max<int64_t>(1, kLeftBytes / left_bytes(steps)));
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t i0 = b_.n0 + runs_begin(b_.n1 - b_.n0, e_.row_run, groups, group);
      const int64_t i1 = b_.n0 + runs_begin(b_.n1 - b_.n0, e_.row_run, groups, group + 1);
      const Panels left = copied_left(rest, steps, copy_of(a_.dy, t0, t1, i0, i1 - i0));
      multiply({.left = left,
                .right = right,
                .i0 = i0,
                .i1 = i1,
                .run = e_.row_run,
                .steps = steps,
                .edge = reinterpret_cast<float*>(rest + left.count * left.bytes)});
    }
  }

 private:
  struct Panels {
    uint8_t* data;
    int64_t count, bytes;
  };

  // Rows [t0, t1) of columns [begin, begin + columns) of m.
  ColumnCopy copy_of(const Tensor& m, int64_t t0, int64_t t1, int64_t begin,
                     int64_t columns) const {
    const int64_t at = (t0 * m.dims[1] + begin) * dtype_bytes(m.dtype);
    return {.columns = columns,
            .from = static_cast<const uint8_t*>(m.data) + at,
            .dtype = m.dtype,
            .stride = m.dims[1],
            .sum = t1 - t0};
  }

  Panels copied_right(int64_t steps, ColumnCopy c) const {
    c.width = kPanel;
    const int64_t bytes = steps * kPanel * 4 + kPanelPad;
    return copied(e_.copy_right, {scratch_, ceil_div(c.columns, kPanel), bytes}, c);
  }

  // Panel p has columns [begin(p), begin(p + 1)): as even as can be, or all of its width.
  Panels copied_left(uint8_t* to, int64_t steps, ColumnCopy c) const {
    c.width = e_.column_width;
    c.even = e_.row_run == 1;
    return copied(e_.copy_left, {to, ceil_div(c.columns, e_.tile_rows), left_bytes(steps)}, c);
  }

  static Panels copied(void (*copy)(const ColumnCopy&), Panels to, ColumnCopy c) {
    c.panels = to.data;
    c.panel_bytes = to.bytes;
    c.count = to.count;
    copy(c);
    return to;
  }

  int64_t left_bytes(int64_t steps) const { return steps * e_.column_width * 4 + kPanelPad; }

  // Columns [i0, i1) of dy against columns [k0, k1) of x. `edge`: room for a tile's sums of one panel.
  struct Product {
    Panels left, right;
    int64_t i0, i1, run, steps;
    float* edge;

    int64_t row(int64_t p) const { return i0 + runs_begin(i1 - i0, run, left.count, p); }
    int64_t rows(int64_t p) const { return row(p + 1) - row(p); }
  };

  // A small tile would need a right panel from L2 as fast as it multiplies: all left panels take turns at one.
  void multiply(const Product& m) const {
    const int64_t at_once = e_.parts.sum > 0 ? 1 : m.right.count;
    for (int64_t panel = 0; panel < m.right.count; panel += at_once) {
      const int64_t panels = std::min(at_once, m.right.count - panel);
      for (int64_t p = 0; p < m.left.count; ++p) multiply(m, p, panel, panels);
    }
  }

  // What the tiles of left panel p ask for meanwhile: the sums that the next one adds to.
  NextRows sums_behind(const Product& m, int64_t p, int64_t panel, int64_t panels) const {
    if (e_.turn_steps == 0 || p + 1 == m.left.count) return {};
    const int64_t columns = std::min(panels * kPanel, b_.k1 - b_.k0 - panel * kPanel);
    const RowsAhead rows = {.first = reinterpret_cast<const uint8_t*>(sums_at(m.row(p + 1), panel)),
                            .rows = m.rows(p + 1),
                            .bytes = columns * kFloat,
                            .stride = k_ * kFloat,
                            .soon = m.rows(p + 1) * columns * kFloat <= kSoonBytes};
    return {.x = {}, .y = {rows, panels * ceil_div(m.steps, e_.turn_steps)}};
  }

  float* sums_at(int64_t row, int64_t panel) const {
    return a_.dw.as<float>() + (b_.group * n_ + row) * k_ + b_.k0 + panel * kPanel;
  }

  // dw[rows of left panel p, columns of some right panels] += left right; a last, partial one goes through `edge`, so
  // that it goes on from what is in dw as the others do.
  void multiply(const Product& m, int64_t p, int64_t panel, int64_t panels) const {
    const int64_t columns = b_.k1 - b_.k0, whole = std::min(columns / kPanel - panel, panels);
    float* dw = sums_at(m.row(p), panel);
    NextRows next = sums_behind(m, p, panel, panels);
    Tile tile = {.a = m.left.data + p * m.left.bytes,
                 .b = m.right.data + panel * m.right.bytes,
                 .b_stride = m.right.bytes,
                 .panels = whole,
                 .steps = m.steps,
                 .c = dw,
                 .c_stride = k_,
                 .rows = m.rows(p),
                 .add = true,
                 .next = next.any() ? &next : nullptr};
    if (whole > 0) e_.column_tile(tile);
    if (whole == panels) return;
    const int64_t rest = columns % kPanel;
    float* last = dw + whole * kPanel;
    tile.b = m.right.data + (panel + whole) * m.right.bytes;
    tile.panels = 1;
    tile.c = m.edge;
    tile.c_stride = kPanel;
    for (int64_t i = 0; i < tile.rows; ++i) {
      std::fill(std::copy_n(last + i * k_, rest, m.edge + i * kPanel), m.edge + (i + 1) * kPanel,
                0.0f);
    }
    e_.column_tile(tile);
    for (int64_t i = 0; i < tile.rows; ++i) std::copy_n(m.edge + i * kPanel, rest, last + i * k_);
  }

  const GroupedLinearBackwardWeight& a_;
  const LinearEngine& e_;
  const GradientBlock b_;
  const int64_t n_, k_;
  uint8_t* scratch_;
};

}  // namespace

void run_weight_product(Context& ctx, const GroupedLinearBackwardWeight& a, const LinearEngine& e) {
  const GradientCut cut(a, e, ctx.pool->threads());
  const int64_t n = a.dy.dims[1], k = a.x.dims[1], panels = ceil_div(k, kPanel);
  int64_t tasks = 0;
  for (int64_t g = 0; g < a.dw.dims[0]; ++g) tasks += cut.left(g) * cut.right();
  ctx.pool->parallel_for(tasks, [&](int64_t task, int worker) {
    int64_t g = 0;
    while (task >= cut.left(g) * cut.right()) task -= cut.left(g++) * cut.right();
    const int64_t left = task / cut.right(), right = task % cut.right();
    const GradientBlock block = {
        .group = g,
        .n0 = runs_begin(n, e.row_run, cut.left(g), left),
        .n1 = runs_begin(n, e.row_run, cut.left(g), left + 1),
        .k0 = kPanel * even_begin(panels, cut.right(), right),
        .k1 = std::min(k, kPanel * even_begin(panels, cut.right(), right + 1))};
    if (block.n0 >= block.n1 || block.k0 >= block.k1) return;
    const BlockTask block_task(a, e, block, ctx.worker_scratch<uint8_t>(worker));
    const int64_t end = a.rows[block.group + 1], block_rows = e.column_steps * e.column_step;
    for (int64_t t = a.rows[block.group]; t < end; t += block_rows) {
      block_task.run(t, std::min(t + block_rows, end));
    }
  });
}

void grouped_linear_backward_weight(Context& ctx, const GroupedLinearBackwardWeight& a) {
  run_weight_product(ctx, a, linear_engine(a.x.dtype));
  if (!a.dbias.empty()) add_column_sums(ctx, a.dbias.as<float>(), a.dy, a.rows);
}

}  // namespace moraine::cpu
