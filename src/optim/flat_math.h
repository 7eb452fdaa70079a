// FlatMath: the SIMD loops over flat ranges that the optimizers are made of.
//
// Each function runs on the calling thread. All but the sums and transpose_block treat
// every element by itself, in the same arithmetic at any position, so a range may be split anywhere
// without changing a bit.
//
// Order:    sum_of_squares_block adds element i to the (i mod 16)-th of sixteen double
//           accumulators, then the accumulators as a binary tree: the same bits on every Isa.
// Aliasing: outputs overlap nothing unless they are the same pointer where "in and out" is said.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace moraine {

double sum_of_squares_block(const float* x, int64_t n);

void scale_block(float* x, int64_t n, float factor);  // x *= factor

struct TransposeBlock {
  float* out;       // [cols, rows] out
  const float* in;  // [rows, cols]
  int64_t rows, cols;
  int64_t row_begin, row_end;  // of `in`
};
// out[c, r] = in[r, c] for the rows of the block.
void transpose_block(const TransposeBlock& a);

struct MomentumBlock {
  float* out;      // [n] out: what is orthogonalised
  void* momentum;  // [n] in and out, f32 or bf16
  const float* g;  // [n] in
  int64_t n;
  DType momentum_dtype;
  float g_scale;  // g is multiplied by it first
  float mu;
  bool nesterov;
};
// momentum = mu * momentum + g ; out = nesterov ? g + mu * momentum : momentum
void momentum_block(const MomentumBlock& a);

// w = w * keep - x * rate
void decay_and_subtract_block(float* w, const float* x, int64_t n, float keep, float rate);

struct AdamWBlock {
  float* w;        // [n] in and out
  float* m;        // [n] in and out
  float* v;        // [n] in and out
  const float* g;  // [n] in
  int64_t n;
  float g_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float m_correction, v_correction;  // 1 / (1 - beta^step)
  float eps, keep, rate;             // keep = 1 - lr * wd, rate = lr
};
// m = beta1 m + (1-beta1) g ; v = beta2 v + (1-beta2) g^2
// w = w * keep - rate * (m * m_correction) / (sqrt(v * v_correction) + eps)
void adamw_block(const AdamWBlock& a);

// The same, and what the three were and are: word_sum_block of the n elements from position `first`.
struct AdamWSums {
  uint64_t w = 0, m = 0, v = 0;
  bool operator==(const AdamWSums&) const = default;
};
struct AdamWSeen {
  AdamWSums before, after;
};
AdamWSeen adamw_block_seen(const AdamWBlock& a, int64_t first);

// Whether memory has changed: the sum mod 2^64 of (bits of the element at position i) * (odd 32-bit key of i), the same
// for any order and any split. One element with other bits always changes it; several do, but for a chance of 2^-31 at
// most (two that change by opposite amounts, at positions of the same key; those 2^32 apart have one). Nothing for who
// must not be deceived (base/hash.h).
uint64_t word_sum_block(const float* x, int64_t n, int64_t first);

}  // namespace moraine
