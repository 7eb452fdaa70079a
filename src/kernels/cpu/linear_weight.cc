// Weight gradients: columns of dy against columns of x, summed over the rows of a group.
#include <algorithm>

#include "kernels/cpu/linear_columns.h"
#include "kernels/cpu/linear_engine.h"
#include "kernels/linear.h"

namespace moraine::cpu {
namespace {

constexpr int64_t kL2Bytes = 768 << 10;  // of panels: most of 1 MiB
constexpr int64_t kPanelPad = 64;  // bytes: panels a power of two apart would share cache sets
constexpr int64_t kMinTaskColumns = 128;  // smaller tasks copy more than they multiply

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Cut {
  int64_t left_parts, right_parts;  // of the n and of the k columns
};

// Few enough parts that copying stays small, enough that the panels fit L2 and every thread has
// work.
Cut choose_cut(const GroupedLinearBackwardWeight& a, const LinearEngine& e, int threads) {
  const int64_t n = a.dy.dims[1], k = a.x.dims[1], groups = a.dw.dims[0];
  int64_t longest = 1;
  for (int64_t g = 0; g < groups; ++g) longest = std::max(longest, a.rows[g + 1] - a.rows[g]);
  const int64_t steps = std::min(ceil_div(longest, e.column_step), kBlockWords);
  const int64_t budget = kL2Bytes / (4 * steps);  // columns, left and right together
  const int64_t wanted = threads == 1 ? 1 : 4 * threads;
  Cut cut = {1, 1};
  while (true) {
    const int64_t left = ceil_div(n, cut.left_parts), right = ceil_div(k, cut.right_parts);
    const bool fits = left * 8 / 7 + right <= budget;
    const bool busy = groups * cut.left_parts * cut.right_parts >= wanted;
    const int64_t smallest = fits ? kMinTaskColumns : kPanel;
    if ((fits && busy) || std::max(left, right) < 2 * smallest) return cut;
    ++(left > right ? cut.left_parts : cut.right_parts);
  }
}

struct Block {
  int64_t group, n0, n1, k0, k1;
};

void run_block(const GroupedLinearBackwardWeight& a, const LinearEngine& e, const Block& b,
               uint8_t* scratch) {
  const int64_t n = a.dy.dims[1], k = a.x.dims[1], element = dtype_bytes(a.x.dtype);
  const int64_t left_panels = ceil_div(b.n1 - b.n0, e.tile_rows);
  const int64_t right_panels = ceil_div(b.k1 - b.k0, kPanel), whole = (b.k1 - b.k0) / kPanel;
  const int64_t block_rows = kBlockWords * e.column_step, end = a.rows[b.group + 1];
  float* dw = a.dw.as<float>() + (b.group * n + b.n0) * k + b.k0;
  for (int64_t t0 = a.rows[b.group]; t0 < end; t0 += block_rows) {
    const int64_t rows = std::min(block_rows, end - t0), steps = ceil_div(rows, e.column_step);
    const int64_t left_bytes = steps * e.column_width * 4 + kPanelPad;
    const int64_t right_bytes = steps * kPanel * 4 + kPanelPad;
    uint8_t* left = scratch;
    uint8_t* right = left + left_panels * left_bytes;
    float* edge = reinterpret_cast<float*>(right + right_panels * right_bytes);  // [tile_rows, 32]
    e.copy_columns({.panels = left,
                    .panel_bytes = left_bytes,
                    .count = left_panels,
                    .width = e.column_width,
                    .columns = b.n1 - b.n0,
                    .even = true,
                    .from = static_cast<const uint8_t*>(a.dy.data) + (t0 * n + b.n0) * element,
                    .dtype = a.dy.dtype,
                    .stride = n,
                    .sum = rows});
    e.copy_columns({.panels = right,
                    .panel_bytes = right_bytes,
                    .count = right_panels,
                    .width = kPanel,
                    .columns = b.k1 - b.k0,
                    .even = false,
                    .from = static_cast<const uint8_t*>(a.x.data) + (t0 * k + b.k0) * element,
                    .dtype = a.x.dtype,
                    .stride = k,
                    .sum = rows});
    for (int64_t p = 0; p < left_panels; ++p) {
      const int64_t i0 = even_begin(b.n1 - b.n0, left_panels, p);
      const int64_t i1 = even_begin(b.n1 - b.n0, left_panels, p + 1);
      Tile tile = {.a = left + p * left_bytes,
                   .b = right,
                   .b_stride = right_bytes,
                   .panels = whole,
                   .steps = steps,
                   .c = dw + i0 * k,
                   .c_stride = k,
                   .rows = i1 - i0,
                   .add = true};
      if (whole > 0) e.column_tile(tile);
      if (whole == right_panels) continue;
      tile.b = right + whole * right_bytes;
      tile.panels = 1;
      tile.c = edge;
      tile.c_stride = kPanel;
      tile.add = false;
      e.column_tile(tile);
      const int64_t rest = b.k1 - b.k0 - whole * kPanel;
      for (int64_t i = 0; i < i1 - i0; ++i) {
        float* to = dw + (i0 + i) * k + whole * kPanel;
        for (int64_t j = 0; j < rest; ++j) to[j] += edge[i * kPanel + j];
      }
    }
  }
}

}  // namespace

void grouped_linear_backward_weight(Context& ctx, const GroupedLinearBackwardWeight& a) {
  const LinearEngine& e = linear_engine(a.x.dtype);
  const Cut cut = choose_cut(a, e, ctx.pool->threads());
  const int64_t n = a.dy.dims[1], k = a.x.dims[1], panels = ceil_div(k, kPanel);
  const int64_t parts = cut.left_parts * cut.right_parts;
  ctx.pool->parallel_for(a.dw.dims[0] * parts, [&](int64_t task, int worker) {
    const int64_t left = task % parts / cut.right_parts, right = task % cut.right_parts;
    const Block block = {
        .group = task / parts,
        .n0 = even_begin(n, cut.left_parts, left),
        .n1 = even_begin(n, cut.left_parts, left + 1),
        .k0 = kPanel * even_begin(panels, cut.right_parts, right),
        .k1 = std::min(k, kPanel * even_begin(panels, cut.right_parts, right + 1))};
    if (block.n0 < block.n1 && block.k0 < block.k1) {
      run_block(a, e, block, ctx.worker_scratch<uint8_t>(worker));
    }
  });
  if (!a.dbias.empty()) add_column_sums(ctx, a.dbias.as<float>(), a.dy, a.rows);
}

}  // namespace moraine::cpu
