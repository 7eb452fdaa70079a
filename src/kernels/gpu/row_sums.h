// RowSums: the end of a gradient's sum over rows on a GPU: what blocks of 64 rows have summed, added to the gradient.
//
//   y[i] += sum_b sums[b,i], i < count
//
// Order:    blocks ascending from zero, then what was there: the same bits on every target.
// Cost:     reads a float for each 64 rows.
#pragma once

#include <cstdint>

namespace moraine::gpu {

class Gpu;

constexpr int64_t kSumRows = 64;  // of a block, as on the CPU; part of the answer

struct RowSumsArgs {
  float* y;           // [count] added to
  const float* sums;  // [blocks, stride]
  int64_t blocks, stride, count;
};

inline int64_t row_blocks(int64_t rows) { return (rows + kSumRows - 1) / kSumRows; }

// Pointers in the memory of `gpu`.
void add_row_sums(Gpu& gpu, const RowSumsArgs& a);

}  // namespace moraine::gpu
