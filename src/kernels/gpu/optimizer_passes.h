// OptimizerPasses: what the optimizers do element by element, on a GPU: a thread takes an element.
//
//   adamw        m = beta1 m + (1 - beta1) g ; v = beta2 v + (1 - beta2) g^2 ;
//                w = w keep - rate (m m_correction) / (sqrt(v v_correction) + eps)         of ranges laid end to end
//   momentum     momentum = mu momentum + g ; out = nesterov ? g + mu momentum : momentum
//   decay        w = w keep - x rate
//   normalise    x = x / (gain |x| + eps), |x| from the sums of squares of its pieces (squares.h), added ascending
//   transpose    out[c, r] = in[r, c]
//
// g is multiplied by g_scale first. Formulas and fused operations are those of optim/flat_math.h.
// Types:    f32; momentum f32 or bf16; the norm f64.
// Order:    no sums but the norm's: the same bits for any split of a range, on every target.
// Cost:     memory-bound.
#pragma once

#include <cstdint>

namespace moraine::gpu {

class Gpu;

constexpr int kTransposeThreads = 256;
constexpr int kTransposeTile = 32;  // rows and columns of a block
constexpr int64_t kNormalisePiece = int64_t{1}
                                    << 15;  // elements of a sum of squares; part of the answer

// A range of AdamW's, in the memory of the GPU.
struct AdamWPiece {
  float *w, *m, *v;  // in and out
  const float* g;
  int64_t end;  // of this range, the ranges laid end to end
  float keep, rate;
};

struct AdamWPassArgs {
  const AdamWPiece* pieces;
  int64_t num_pieces, count;  // elements of all of them
  float g_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float m_correction, v_correction, eps;
};

struct MomentumPassArgs {
  float* out;      // [n] out
  void* momentum;  // [n] in and out, f32 or bf16
  const float* g;  // [n]
  int64_t n;
  float g_scale, mu;
  bool nesterov;
};

struct DecayPassArgs {
  float* w;        // [n] in and out
  const float* x;  // [n]
  int64_t n;
  float keep, rate;
};

struct NormalisePassArgs {
  float* x;            // [n] in and out
  const double* sums;  // of squares of pieces of kNormalisePiece
  int64_t n;
  double gain, eps;
};

struct TransposePassArgs {
  float* out;       // [cols, rows]
  const float* in;  // [rows, cols]
  int64_t rows, cols;
};

// Pointers in the memory of `gpu`, but a.pieces in the host's, copied on the way.
void adamw_pass(Gpu& gpu, AdamWPassArgs a);
void momentum_pass(Gpu& gpu, const MomentumPassArgs& a, bool bf16);
void decay_pass(Gpu& gpu, const DecayPassArgs& a);
// `sums`: room for a double of each piece.
void normalise_pass(Gpu& gpu, const NormalisePassArgs& a, double* sums);
void transpose_pass(Gpu& gpu, const TransposePassArgs& a);

}  // namespace moraine::gpu
