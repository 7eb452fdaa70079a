// Cells are collected from the lanes, multiplied, and put back.
#include "kernels/gpu/emulated_tile.h"

#include "base/check.h"
#include "kernels/gpu/emulate.h"

namespace moraine::gpu {
namespace {

struct Held {
  int lane, register_index;
};
struct CellMap {
  Held (*left)(int i, int k);
  Held (*right)(int k, int j);
  Held (*sum)(int i, int j);
};

// CDNA: operands in four groups of 16 lanes by k, results in four groups by i.
constexpr CellMap kCdna = {
    .left =
        [](int i, int k) {
          return Held{i + 16 * (k >> 2), k & 3};
        },
    .right =
        [](int k, int j) {
          return Held{j + 16 * (k >> 2), k & 3};
        },
    .sum =
        [](int i, int j) {
          return Held{j + 16 * (i >> 2), i & 3};
        },
};

// PTX: groupID = lane >> 2, threadID_in_group = lane & 3; a0 a1 of row groupID, a2 a3 of groupID + 8, a4 to a7 the same
// with k + 8; b0 b1, b2 b3 with k + 8; c0 c1 of row groupID, c2 c3 of groupID + 8. The second mma has columns 8 to 15.
constexpr CellMap kNvidia = {
    .left =
        [](int i, int k) {
          return Held{(i & 7) << 2 | (k & 7) >> 1, (k & 1) | (i & 8) >> 2 | (k & 8) >> 1};
        },
    .right =
        [](int k, int j) {
          return Held{(j & 7) << 2 | (k & 7) >> 1, (k & 1) | (k & 8) >> 2 | (j & 8) >> 1};
        },
    .sum =
        [](int i, int j) {
          return Held{(i & 7) << 2 | (j & 7) >> 1, (j & 1) | (i & 8) >> 2 | (j & 8) >> 1};
        },
};

template <const CellMap& map>
void multiply(void** lanes) {
  constexpr int n = kMatrixDepth;
  const auto lane = [&](const Held& h) { return static_cast<TileLane*>(lanes[h.lane]); };
  BF16 a[n][n], b[n][n];  // b by columns
  for (int i = 0; i < n; ++i) {
    for (int k = 0; k < n; ++k) {
      const Held left = map.left(i, k), right = map.right(k, i);
      a[i][k] = lane(left)->a[left.register_index];
      b[i][k] = lane(right)->b[right.register_index];
    }
  }
  const MatrixRule rule = current_emulation().rule;
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      const Held sum = map.sum(i, j);
      float& c = lane(sum)->c[sum.register_index];
      c = matrix_dot(rule, a[i], b[j], c);
    }
  }
}

}  // namespace

void multiply_lanes_cdna(void** lanes, int count) {
  MR_CHECK(count == 64, "%d lanes", count);
  multiply<kCdna>(lanes);
}

void multiply_lanes_nvidia(void** lanes, int count) {
  MR_CHECK(count == 32, "%d lanes", count);
  multiply<kNvidia>(lanes);
}

}  // namespace moraine::gpu
