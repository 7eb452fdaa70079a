// TileCells: tiles of chunks (tile.h), each lane its cells for itself: where no instruction loads them together.
#pragma once

#include "kernels/gpu/tile.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

template <class At>
MR_DEVICE LeftTile left_of_lines(const At& at) {
  return left_tile([&](int i, int k) { return load_cell(at(i, k / kChunk), k % kChunk); });
}
template <class At>
MR_DEVICE RightTile right_of_lines(const At& at) {
  return right_tile([&](int k, int j) { return load_cell(at(j, k / kChunk), k % kChunk); });
}
template <class At>
MR_DEVICE LeftTile left_of_columns(const At& at) {
  return left_tile([&](int i, int k) { return load_cell(at(k, i / kChunk), i % kChunk); });
}
template <class At>
MR_DEVICE RightTile right_of_columns(const At& at) {
  return right_tile([&](int k, int j) { return load_cell(at(k, j / kChunk), j % kChunk); });
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
