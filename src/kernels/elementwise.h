// Elementwise: sums, copies and checks of flat buffers (gradients, optimizer state, slot tree).
//
//   zero            y[i]  = 0
//   add_into        y[i] += x[i]
//   scale           y[i] *= factor
//   round_copy      y[i]  = x[i] rounded to `precision`, stored as y's type
//   squares_of_ranges  sums[j] = sum_{i in ranges[j]} x[i]^2
//   all_finite      no x[i] is infinite or NaN
//
// Shapes:   any; y and x hold equally many elements.
// Types:    zero: any. scale, squares_of_ranges, all_finite: f32 or bf16.
//           add_into: y f32, x f32 or bf16. round_copy: each f32 or bf16; `precision` f32 (does
//           not round) or bf16, to nearest, ties to even. Arithmetic in f32, squares and their
//           sums in double. The ref backend takes f64 everywhere as well.
// Aliasing: x may be y (round_copy: if of one type). No other overlap.
// Order:    squares_of_ranges: in an order fixed by each range's length, so the same bits for any
//           thread count. Everything else is element by element.
// Cost:     memory-bound: each operand once.
#pragma once

#include <span>

#include "kernels/context.h"
#include "tensor/tensor.h"

namespace moraine {

void zero(Context& ctx, const Tensor& y);
void add_into(Context& ctx, const Tensor& y, const Tensor& x);
void scale(Context& ctx, const Tensor& y, float factor);
void round_copy(Context& ctx, const Tensor& y, const Tensor& x, DType precision);
bool all_finite(Context& ctx, const Tensor& x);

// Elements [begin, end) of a flat buffer.
struct ElementRange {
  int64_t begin = 0, end = 0;
};
struct SquaresOfRanges {
  std::span<double> sums;  // out, one for each range
  Tensor x;                // [n] in
  std::span<const ElementRange> ranges;
};
void squares_of_ranges(Context& ctx, const SquaresOfRanges& a);

namespace ref {
void zero(const Tensor& y);
void add_into(const Tensor& y, const Tensor& x);
void scale(const Tensor& y, float factor);
void round_copy(const Tensor& y, const Tensor& x, DType precision);
void squares_of_ranges(const SquaresOfRanges& a);
bool all_finite(const Tensor& x);
}  // namespace ref
namespace cpu {
void zero(Context& ctx, const Tensor& y);
void add_into(Context& ctx, const Tensor& y, const Tensor& x);
void scale(Context& ctx, const Tensor& y, float factor);
void round_copy(Context& ctx, const Tensor& y, const Tensor& x, DType precision);
void squares_of_ranges(Context& ctx, const SquaresOfRanges& a);
bool all_finite(Context& ctx, const Tensor& x);
}  // namespace cpu

}  // namespace moraine
