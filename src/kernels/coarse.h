// Coarse: an 8-bit copy of a packed matrix, with how far its products can be from the exact ones.
//
//   exact    y[v]  = fl(sum_k w[v,k] * h[k])        linear_forward with the pack, f32 or bf16
//   coarse   c[v]  = the same with the copy: weights w' and a row h' of integers times scales (quantised.h)
//   bound    |y[v] - c[v]| <= reach(v) = size * error[v] + rest * norm[v] + floor
//              size = |h|, rest = |h - h'|, both measured of the row; floor of size and the largest norm
//              error[v] = |w[v] - w'[v]| (1 + g) + |w'[v]| (g + g'),  norm[v] = |w'[v]| (1 + g')
//
// Shapes:   n columns (words), k inputs; |.| is the Euclidean length over k.
// Why:      y - c = (y - w.h) + (w - w').h + w'.(h - h') + (w'.h' - c). By Cauchy and Schwarz the two in the middle are
//           at most |w - w'| |h| and |w'| |h - h'|. The outer two are roundings. A sum of k products in any order is
//           off by at most g sum_k |w h| <= g |w| |h|, g = m u / (1 - m u), u = 2^-24, where m is the most roundings
//           that a term goes through: m = 2 k + 8 covers every engine (linear_engine.h), products rounded or not, even
//           and odd elements apart or not. |w| <= |w'| + |w - w'|. Of c, integers are exact (below 2^24), so g' is of
//           m' = 2 ceil(k / 128) + 8 roundings of |w'| |h'|, and |h'| <= |h| + |h - h'|.
//           What engines take as zero below 2^-126, inputs or results, is at most 2^-126 (2 k + 8) (1 + |w| + |h|) of
//           y; of c it is at most 2^-105 a block (a product of scales, times an integer below 2^21). |w| <= 2 |w'| + 1,
//           as integers are nearest: floor = 2^-100 (k + 64) (1 + 2 most |w'| + |h|) is more than both.
// Order:    lengths are summed in double and rounded up, so the bound holds for the numbers that are stored. A tie of
//           h / step rounds to even on every Isa (quantised.h), and here.
// Range:    below 2^50 both |h| and every |w'| leave no sum an overflow. has_reach is false for a row above that or not
//           finite, and for a matrix with such a weight: then nothing is known.
// Bytes:    8.125 bits a weight and 8 bytes a word: 0.51 of bf16, 0.26 of f32.
// Cost:     make_coarse reads the pack once and rounds it: 7 ns a weight and thread.
#pragma once

#include <string>

#include "kernels/linear.h"

namespace moraine {

struct CoarseMatrix {
  PackedMatrix pack;     // kQ8, one group
  Tensor error, norm;    // [n] f32
  double norm_most = 0;  // the largest norm; not finite: has_reach is false
  bool empty() const { return pack.data == nullptr; }
};

// Whether there is something to gain: plain f32 or bf16, one group.
bool can_be_coarse(const PackedMatrix& exact);
// Memory for the copy of `exact`, whose data need not be there.
CoarseMatrix take_coarse(Arena& arena, const std::string& name, const PackedMatrix& exact);
// After `exact` has changed.
void make_coarse(Context& ctx, const PackedMatrix& exact, CoarseMatrix& coarse);

// Of a row h, rounded up.
struct RowLengths {
  double size = 0;  // |h|; not finite if an element is not
  double rest = 0;  // |h - h'|
};
RowLengths row_lengths(const Tensor& x, int64_t row);  // x: [T, k] f32 or bf16

bool has_reach(const CoarseMatrix& w, const RowLengths& row);

// lower[v] <= y[v] <= upper[v] of all n words, if has_reach. One thread.
struct CoarseInterval {
  float* lower;         // [n] out
  float* upper;         // [n] out
  const float* coarse;  // [n] in: linear_forward of this row with w.pack
};
void coarse_interval(const CoarseMatrix& w, const RowLengths& row, const CoarseInterval& a);

}  // namespace moraine
