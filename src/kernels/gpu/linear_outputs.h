// LinearOutputs: which rows and outputs of a grouped product a block has, for kernels that share linear.h's grid.
#pragma once

#include "kernels/gpu/device.h"
#include "kernels/gpu/linear.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// The rows and outputs of a block.
struct LinearBlock {
  int64_t group;  // -1: none
  int64_t row_begin, row_end, output_begin;
};

// Where the rows of group g begin; g may be the number of groups.
MR_DEVICE int64_t group_begin(const LinearArgs& a, int64_t g) {
  return a.rows == nullptr ? g * a.group_rows : load(a.rows + g);
}

// Row tiles are counted group by group.
MR_DEVICE LinearBlock find_block(const LinearArgs& a, int rows = kLinearRows,
                                 int outputs = kLinearOutputs) {
  int64_t tile = block_y();
  for (int64_t g = 0; g < a.groups; ++g) {
    const int64_t begin = group_begin(a, g), end = group_begin(a, g + 1);
    const int64_t tiles = (end - begin + rows - 1) / rows;
    if (tile < tiles) return {g, begin + tile * rows, end, block_x() * outputs};
    tile -= tiles;
  }
  return {-1, 0, 0, 0};
}

// One output of the block, if it is inside.
template <class Y>
MR_DEVICE void store_output(const LinearArgs& a, const LinearBlock& b, int row, int output,
                            float v) {
  const int64_t t = b.row_begin + row, j = b.output_begin + output;
  if (t >= b.row_end || j >= a.n) return;
  if (a.bias != nullptr) v += load(a.bias + (b.group * a.n + j));
  store(static_cast<Y*>(a.y) + (t * a.n + j), narrow_to<Y>(v));
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
