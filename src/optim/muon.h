// Muon: momentum whose matrices are orthogonalised before they move the weights.
//
//   buf = mu * buf + g ;  g' = g + mu * buf (Nesterov) or buf
//   X   = NewtonSchulz(g')                          transposed inside if rows > cols
//   W   = W * (1 - lr * wd) - lr * 0.2 * sqrt(max(rows, cols)) * X
//
// 0.2 is the RMS of a typical AdamW update, so one learning rate and one weight decay serve both.
//
// Shapes: matrices are ranges of flat buffers; experts each by themselves.
// Types:  weights, gradients f32; momentum f32 or bf16; products f32 or bf16 (newton_schulz.h).
// Order:  every matrix is a function of its own numbers. Small ones are updated one per task, large
//         ones by all threads together; neither choice nor thread count changes a bit.
// Cost:   muon_flops, and 6 passes over the matrix.
// Source: Jordan 2024; Liu et al. 2025 (Moonlight); docs/model.md, optimizer.
#pragma once

#include <cstdint>
#include <span>

#include "optim/flat_math.h"
#include "optim/newton_schulz.h"

namespace moraine {

struct MuonOptions {
  double lr = 2e-3;
  double momentum = 0.95;  // [0, 1); 0 for reinforcement learning
  bool nesterov = true;
  NewtonSchulzKind coefficients = NewtonSchulzKind::kClassic;
  int ns_steps = 5;
  DType ns_dtype = DType::kBF16;       // operands of the products
  DType momentum_dtype = DType::kF32;  // f32 or bf16
  double weight_decay = 0.1;
};

struct MuonMatrix {
  int64_t offset = 0;           // first element in weights and gradients
  int64_t momentum_offset = 0;  // first element in the momentum buffer
  int64_t rows = 0, cols = 0;
  double lr_scale = 1;
  bool weight_decay = true;
};

struct MuonStep {
  Tensor weights;                        // [N] f32 in and out
  Tensor momentum;                       // [M] f32 or bf16 in and out
  Tensor scratch;                        // [muon_scratch_bytes(...)] u8
  Tensor gradients;                      // [N] f32 in
  std::span<const MuonMatrix> matrices;  // those to move: all, or a rank's share
  double gradient_scale;
  double lr;  // of this step, schedule included; lr_scale of the matrix comes on top
  const MuonOptions& options;
};

int64_t muon_scratch_bytes(std::span<const MuonMatrix> matrices, DType compute, int threads);
double muon_flops(int64_t rows, int64_t cols, int ns_steps);  // also the cost for balancing ranks
void muon_step(Context& ctx, const MuonStep& a);

// The passes over one matrix, for any backend: momentum, Newton-Schulz of x (standing, transposed, if tall), decay.
struct MuonPasses {
  MomentumBlock momentum;  // of the whole matrix; out: standing
  Tensor standing;         // [rows, cols], the matrix as it stands; x unless tall
  bool tall;               // rows > cols
  NewtonSchulz newton_schulz;
  float* w;          // [rows, cols] in and out
  float keep, rate;  // w = w * keep - standing * rate
};
// `scratch`: muon_scratch_bytes of this matrix alone.
MuonPasses muon_passes(const MuonStep& a, const MuonMatrix& matrix, uint8_t* scratch);
// Stops at a bug of the caller: types, shapes, matrices outside the buffers, a scratch too small for `threads`.
void check_muon(const MuonStep& a, int threads);

}  // namespace moraine
