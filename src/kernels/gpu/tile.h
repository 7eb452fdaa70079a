// Tile: 16 x 16 pieces of matrices that the lanes of a wave hold together, multiplied by the matrix unit.
//
//   multiply_add(c, a, b)        c[i,j] += sum_k a[i,k] b[k,j], i, j, k = 0 .. 15; all lanes come to this line
//
// A lane holds kHeld cells of each: element e of lane l is the cell
//
//                  wave of 64 (CDNA: v_mfma_f32_16x16x16)   wave of 32 (sm_80: mma.m16n8k16, columns 0-7 and 8-15)
//                  e = 0 .. 3                               e = 4 z + 2 y + x, x, y, z = 0 or 1
//   left   a[i,k]  i = l % 16           k = 4 (l / 16) + e  i = l / 4 + 8 y           k = 2 (l % 4) + x + 8 z
//   right  b[k,j]  k = 4 (l / 16) + e   j = l % 16          k = 2 (l % 4) + x + 8 y   j = l / 4 + 8 z
//   sum    c[i,j]  i = 4 (l / 16) + e   j = l % 16          i = l / 4 + 8 y           j = 2 (l % 4) + x + 8 z
//
// So a row of a sum is held by the lanes that differ in the bits of kRowLanes - 1: 16 lanes with one cell each of 4
// rows, or 4 lanes with four cells each of 2.
//
//   left_of_lines(at), right_of_lines(at)        of chunks in shared memory: at(line, half) is the chunk of k 8 half ..
//                                                8 half + 7 of row i, or column j, `line`
//   left_of_columns(at), right_of_columns(at)    at(line, half): that of i, or j, 8 half .. 8 half + 7 at k = line
//                                                All lanes of the wave come to these lines
//
// Types:    a, b bf16; c f32. How the sum rounds is the generation's (matrix_rules.h), a function of k alone.
// Source:   AMD Instinct MI200 and MI300 instruction set manuals, matrix layouts; PTX ISA, mma.m16n8k16 with .bf16.
//           emulated_tile.cc has them a second time, as a map from cells to lanes.
#pragma once

#include "kernels/gpu/device.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

constexpr int kTile = 16;
constexpr int kHeld = kTile * kTile / kWave;     // cells of a lane
constexpr int kRowLanes = kWave == 64 ? 16 : 4;  // lanes that hold a row of a sum
constexpr int kLaneRows = kWave == 64 ? 4 : 2;   // rows of a sum that a lane has cells of

struct LeftTile {
  BF16 v[kHeld];
};
struct RightTile {
  BF16 v[kHeld];
};
struct SumTile {
  float v[kHeld];
};

struct TileCell {
  int row, column;
};

MR_DEVICE constexpr TileCell left_cell(int l, int e) {
  if (kWave == 64) return {l % 16, 4 * (l / 16) + e};
  return {l / 4 + 8 * (e / 2 % 2), 2 * (l % 4) + e % 2 + 8 * (e / 4)};
}

MR_DEVICE constexpr TileCell right_cell(int l, int e) {
  if (kWave == 64) return {4 * (l / 16) + e, l % 16};
  return {2 * (l % 4) + e % 2 + 8 * (e / 2 % 2), l / 4 + 8 * (e / 4)};
}

MR_DEVICE constexpr TileCell sum_cell(int l, int e) {
  if (kWave == 64) return {4 * (l / 16) + e, l % 16};
  return {l / 4 + 8 * (e / 2 % 2), 2 * (l % 4) + e % 2 + 8 * (e / 4)};
}

// Which of its rows a lane's element is in, 0 .. kLaneRows - 1.
MR_DEVICE constexpr int row_slot(int e) { return kWave == 64 ? e : e / 2 % 2; }

// get(row, column) for every cell that this lane holds.
template <class Get>
MR_DEVICE LeftTile left_tile(const Get& get) {
  LeftTile t;
  MR_UNROLL for (int e = 0; e < kHeld; ++e) {
    const TileCell c = left_cell(lane(), e);
    t.v[e] = get(c.row, c.column);
  }
  return t;
}
template <class Get>
MR_DEVICE RightTile right_tile(const Get& get) {
  RightTile t;
  MR_UNROLL for (int e = 0; e < kHeld; ++e) {
    const TileCell c = right_cell(lane(), e);
    t.v[e] = get(c.row, c.column);
  }
  return t;
}
// put(row, column, sum) for every cell that this lane holds.
template <class Put>
MR_DEVICE void each_sum(const SumTile& t, const Put& put) {
  MR_UNROLL for (int e = 0; e < kHeld; ++e) {
    const TileCell c = sum_cell(lane(), e);
    put(c.row, c.column, t.v[e]);
  }
}

// Elements e, e + 1 .. of a lane that are next to each other in a row, e a multiple of it.
constexpr int kSumRun = kWave == 64 ? 1 : 2;
template <class E>
struct alignas(kSumRun * sizeof(E)) SumRun {
  E v[kSumRun];
};
// Of a matrix in which lines_are_aligned<SumRun<E>>, at an even column.
template <class E>
MR_DEVICE SumRun<E> load_run(const E* p) {
  return load(reinterpret_cast<const SumRun<E>*>(p));
}
template <class E>
MR_DEVICE void store_run(E* p, const SumRun<E>& run) {
  store(reinterpret_cast<SumRun<E>*>(p), run);
}
MR_DEVICE void store_run(float* p, const float* sums) {
  SumRun<float> run;
  MR_UNROLL for (int e = 0; e < kSumRun; ++e) run.v[e] = sums[e];
  store_run(p, run);
}

// Over the lanes that hold a row: the largest, the sum. The same bits in each of them.
MR_DEVICE float row_max(float v) {
  MR_UNROLL for (int mask = 1; mask < kRowLanes; mask *= 2) {
    const float other = shuffle_xor(v, mask);
    v = other > v ? other : v;
  }
  return v;
}
MR_DEVICE float row_sum(float v) {
  MR_UNROLL for (int mask = 1; mask < kRowLanes; mask *= 2) v += shuffle_xor(v, mask);
  return v;
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu

#if defined(__HIP__)
#include "kernels/gpu/tile_amd.cuh"
#elif defined(__CUDA__) || defined(__CUDACC__)
#include "kernels/gpu/tile_nvidia.cuh"
#else
#include "kernels/gpu/tile_emulated.h"
#endif
