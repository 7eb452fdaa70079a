// ErrorFeedback: weights rounded to integers of 6 or 4 bits, each making up for the errors of those before it.
//
//   loss     of a row w that is given as v: sum_t (sum_k x[t,k] (w[k] - v[k]))^2 = e S e^T, e = w - v,
//            S[i,j] = sum_t x[t,i] x[t,j]: the second moments of what the product reads
//   factor   S / T, shrunk, = L L^T; F[j,i] = L[j,i] / L[i,i] for j > i, D[i] = L[i,i]^2
//            so loss / T = sum_i D[i] (e[i] + sum_{j > i} e[j] F[j,i])^2
//   rounding from the last input to the first: u[i] = w[i] + sum_{j > i} e[j] F[j,i], v[i] = scale * nearest(u[i] /
//            scale); the scale of a block is chosen (kernels/quantised.h) for the u of its inputs without errors
//            within the block, squares of errors weighted by D
//   shrink   correlations C of the inputs become (1 - rho) C + rho I, rho = ((1 - 2/k) tr C^2 + k^2) / ((T + 1 - 2/k)
//            (tr C^2 - k)), from max(2^-14, k 2^-24) to 1: few rows say little about how inputs go together, and
//            rho = 1 leaves rounding to the nearest, weighted by the mean squares; below the least, inputs that depend
//            on each other would ask more of f32 than it has. Four times as much, and again, where moments have lost
//            so much that a pivot is below half of rho
//
// Shapes: k inputs, T rows seen, n rows of weights, B = ceil(k / 128) blocks of b inputs, the last of fewer.
// Types:  f32; tr C^2 in double. An input that was never seen counts as 2^-20 of the mean; if none was, all alike.
// Order:  a row of weights depends on itself and the factor alone. What it takes of errors of later blocks is added in
//         the order of the blocks, that of its own block behind it, from the last input on: the same bits for any
//         number of threads or rows, and on every Isa with fma.
// Cost:   factor k^3 / 6 multiply-adds, of a row of weights k^2 / 2.
// Source: GPTQ (Frantar et al. 2023), in the form of Babai's nearest plane (Chen et al. 2025), which inverts nothing;
//         rho: the oracle approximating shrinkage of Chen, Wiesel, Eldar and Hero 2010.
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/linear.h"
#include "tensor/tensor.h"

namespace moraine {

// f32 elements of a factor: for each block, from its first input k0 on, rows [k - k0, b]: F below the diagonal, D on
// it; what is above it is not read.
int64_t feedback_factor_count(int64_t k);
// Of the packed operand of one product, below.
int64_t feedback_scratch_bytes();

struct FeedbackFactor {
  Tensor factor;  // [feedback_factor_count(k)] f32 out
  Tensor
      moments;   // [k, k] f32: sums over the rows, finite; those on and below the diagonal are read
  int64_t rows;  // T
  Tensor scratch;  // [feedback_scratch_bytes()] u8
};
// Returns rho.
double make_feedback_factor(Context& ctx, const FeedbackFactor& a);

struct FeedBackErrors {
  Tensor w;             // [n, k] f32, finite: in, weights; out, v: multiples of their scales
  Tensor scales;        // [n, B] f32 out
  Tensor factor;        // [feedback_factor_count(k)] f32
  WeightFormat format;  // kQ6 or kQ4
  Tensor errors;        // [n * k] f32: overwritten
  Tensor scratch;       // [feedback_scratch_bytes()] u8
};
void feed_back_errors(Context& ctx, const FeedBackErrors& a);

}  // namespace moraine
