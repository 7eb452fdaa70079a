// Kernels over one tile: the product, the product with a layout read wrongly, and a sum that becomes a left operand.
#pragma once

#include "kernels/gpu/exp.h"
#include "kernels/gpu/test_emulations.h"
#include "kernels/gpu/tile.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

constexpr int kTileThreads = 64;

inline SumTile product_of(const TileArgs& a) {
  const LeftTile left = left_tile([&](int i, int k) { return load(a.a + (i * kTile + k)); });
  const RightTile right = right_tile([&](int k, int j) { return load(a.b + (k * kTile + j)); });
  SumTile sum;
  for (int e = 0; e < kHeld; ++e) {
    const TileCell c = sum_cell(lane(), e);
    sum.v[e] = load(a.c + (c.row * kTile + c.column));
  }
  multiply_add(sum, left, right);
  return sum;
}

MR_KERNEL(tile_product, kTileThreads, TileArgs a) {
  each_sum(product_of(a), [&](int i, int j, float v) { store(a.y + (i * kTile + j), v); });
}

// With the fault, rows of the sum are taken for columns.
MR_KERNEL(tile_sum_layout, kTileThreads, TileArgs a) {
  const SumTile sum = product_of(a);
  for (int e = 0; e < kHeld; ++e) {
    const TileCell c = sum_cell(lane(), e);
    store(a.y + (a.fault ? c.column * kTile + c.row : c.row * kTile + c.column), sum.v[e]);
  }
}

// With the fault, two elements of the right operand change places.
MR_KERNEL(tile_right_layout, kTileThreads, TileArgs a) {
  const LeftTile left = left_tile([&](int i, int k) { return load(a.a + (i * kTile + k)); });
  RightTile right = right_tile([&](int k, int j) { return load(a.b + (k * kTile + j)); });
  if (a.fault) {
    const BF16 first = right.v[0];
    right.v[0] = right.v[1];
    right.v[1] = first;
  }
  SumTile sum = {};
  multiply_add(sum, left, right);
  each_sum(sum, [&](int i, int j, float v) { store(a.y + (i * kTile + j), v); });
}

// y = bf16(a b + c) b: what attention does with its weights. Each wave has a tile of shared memory.
MR_KERNEL(tile_chain, kTileThreads, TileArgs a) {
  MR_SHARED(BF16, p, kTileThreads / kWave * kTile * kTile);
  const Shared<BF16> mine = p + wave() * kTile * kTile;
  each_sum(product_of(a), [&](int i, int k, float v) { store(mine + (i * kTile + k), narrow(v)); });
  if (!a.fault) sync_wave();
  const LeftTile left = left_tile([&](int i, int k) { return load(mine + (i * kTile + k)); });
  const RightTile right = right_tile([&](int k, int j) { return load(a.b + (k * kTile + j)); });
  SumTile sum = {};
  multiply_add(sum, left, right);
  each_sum(sum, [&](int i, int j, float v) { store(a.y + (i * kTile + j), v); });
}

// The sum and the largest of each row of c, by the lanes that hold it.
MR_KERNEL(tile_rows, kTileThreads, TileArgs a) {
  float sum[kLaneRows] = {}, largest[kLaneRows];
  for (float& v : largest) v = -1e30f;
  for (int e = 0; e < kHeld; ++e) {
    const TileCell c = sum_cell(lane(), e);
    const float v = load(a.c + (c.row * kTile + c.column));
    sum[row_slot(e)] += v;
    largest[row_slot(e)] = v > largest[row_slot(e)] ? v : largest[row_slot(e)];
  }
  for (int e = 0; e < kHeld; ++e) {
    const TileCell c = sum_cell(lane(), e);
    const float s = row_sum(sum[row_slot(e)]), m = row_max(largest[row_slot(e)]);
    store(a.y + (c.row * kTile + c.column), c.column % 2 == 0 ? s : m);
  }
}

// y[i] = e^-|c[i]|, sigmoid(c[i]) or log |c[i]|, by i % 3.
MR_KERNEL(own_exp, kTileThreads, TileArgs a) {
  for (int i = thread(); i < kTile * kTile; i += kTileThreads) {
    const float v = load(a.c + i), size = v < 0 ? -v : v;
    store(a.y + i, i % 3 == 0   ? exp_nonpositive(-size)
                   : i % 3 == 1 ? sigmoid(v)
                                : log_positive(size));
  }
}

inline const EmulatedEntry kTileKernels[] = {
    MR_EMULATED(tile_product, TileArgs),      MR_EMULATED(tile_sum_layout, TileArgs),
    MR_EMULATED(tile_right_layout, TileArgs), MR_EMULATED(tile_chain, TileArgs),
    MR_EMULATED(tile_rows, TileArgs),         MR_EMULATED(own_exp, TileArgs),
};

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
