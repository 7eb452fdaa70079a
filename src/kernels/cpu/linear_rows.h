// RowsProduct: y = alpha * x w^T + bias + beta * y0 for rows grouped by weight.
#pragma once

#include <span>

#include "kernels/cpu/linear_engine.h"
#include "kernels/linear.h"

namespace moraine::cpu {

constexpr int64_t kRowPanelBytes = kMaxTileRows * kRowWords * 4;

struct RowsProduct {
  Tensor y;                       // [T, n] out, f32 or bf16
  Tensor x;                       // [T, k] in, the pack's type, or f32 (rounded to it)
  PackedMatrix w;                 // G groups of n x k
  std::span<const int64_t> rows;  // [G+1]
  const float* bias = nullptr;    // [G, n] or null
  float alpha = 1, beta = 0;
  const float* y0 = nullptr;  // [T, n] or null; y is f32 then, and may be y0
  bool symmetric = false;  // one group, n == T: only panels on or above the diagonal are computed
};
void run_rows_product(Context& ctx, const RowsProduct& p, const LinearEngine& e);

// What grouped_linear_backward_weight (linear.h) is made of, but for dbias.
void run_weight_product(Context& ctx, const GroupedLinearBackwardWeight& a, const LinearEngine& e);

// c[j,i] = c[i,j] for j > i of a square f32 matrix.
void mirror(Context& ctx, const Tensor& c);

}  // namespace moraine::cpu
