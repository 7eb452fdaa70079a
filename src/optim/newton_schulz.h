// NewtonSchulz: the nearest (semi-)orthogonal matrix to a matrix, approximately, by products only.
//
//   X = X / (s * |X|_F + eps)
//   for each step:  A = X X^T ;  B = b A + c A A ;  X = a X + B X
//
//   classic        a, b, c = 3.4445, -4.7750, 2.0315 in every step; s = 1, eps = 1e-7. Five steps put every
//                  singular value above 2e-3 of the norm into [0.68, 1.21].
//   polar express  coefficients of its own in each of five steps (the last are used again after that);
//                  s = 1.02, eps = 1e-6. Closer to 1: [0.84, 1.15] from 1e-3 of the norm up.
//
// Shapes: X [m, n] with m <= n (transpose a tall matrix first): the Gram matrix A is the small
//         side.
// Types:  f32; the operands of the products are rounded to `compute` (f32 or bf16), sums in f32.
// Order:  fixed; the same bits for any thread count. A zero matrix stays zero.
// Cost:   steps * (3 m^2 n + m^3) flops: A and B are symmetric and computed once above the
//         diagonal.
// Source: Jordan 2024 (Muon); Amsel et al. 2025 (Polar Express); docs/model.md, optimizer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "kernels/context.h"
#include "tensor/tensor.h"

namespace moraine {

struct MatmulNT;  // kernels/linear.h

enum class NewtonSchulzKind : uint8_t { kClassic, kPolarExpress };

const char* newton_schulz_name(NewtonSchulzKind kind);

struct NewtonSchulz {
  Tensor x;        // [m, n] in and out
  Tensor scratch;  // [newton_schulz_scratch_bytes(m, n, compute)] u8
  NewtonSchulzKind kind;
  int steps;
  DType compute;
};

int64_t newton_schulz_scratch_bytes(int64_t m, int64_t n, DType compute);
double newton_schulz_flops(int64_t m, int64_t n, int steps);
void newton_schulz(Context& ctx, const NewtonSchulz& a);

// The steps, of any backend: where in the scratch what lies, how X is normalised, and the products after that.
struct NewtonSchulzRooms {
  Tensor gram, poly;  // [m, m]
  double* sums;       // of squares, one for each kNormBlock elements of X
  void* pack;         // matmul_scratch_bytes of any of the products
};
constexpr int64_t kNormBlock = 1 << 15;  // elements summed by one task; part of the answer
struct NewtonSchulzNorm {
  double gain, eps;  // X = X / (gain |X| + eps)
};
NewtonSchulzRooms newton_schulz_rooms(const NewtonSchulz& a);
NewtonSchulzNorm newton_schulz_norm(NewtonSchulzKind kind);
void newton_schulz_products(const NewtonSchulz& a,
                            const std::function<void(const MatmulNT&)>& multiply);

// out [cols, rows] = in [rows, cols] transposed, on all threads.
void transpose(Context& ctx, const Tensor& out, const Tensor& in);

}  // namespace moraine
