// Balance: moves the router's balancing biases so that every expert gets the same number of tokens.
//
//   f[l,e] = load[l,e] / sum over all classes of load[l,:]
//   g[l,e] = f[l,e] - mean over the real experts of f[l,:]      (= f - 1/E without a skip class)
//   b[l,e] moves by Adam on g; the skip entry (the last, if there is one) never moves
//   rate   = lr * min(1, step / warmup_steps)
//
// Why a warm-up: Adam divides the size of g away, so a bias moves by the whole rate however small the
// imbalance is. The probabilities of a fresh router lie closer together than 1e-2: at a rate of 1e-2 the first
// steps throw all tokens to and fro between a few experts (docs/model.md, "The first hundred steps").
//
// The counts are integers of the whole global batch, so every rank computes the same bits. There is
// no loss term and no weight decay. A layer with no tokens at all is left alone.
//
// Shapes:   L layers, C classes: E experts, and one skip class after them if `skip`.
// Types:    b, m, v: f32; load: i64; arithmetic in double (a few hundred numbers).
// Source:   docs/model.md, router (TR8B eq. 5); centring over the real experts is ours.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace moraine {

struct BalanceOptions {
  double lr = 1e-2;
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  int64_t warmup_steps = 0;  // 0: the whole rate from the first step on, the published rule
  bool skip = true;          // the last class is the skip class: its bias is fixed
};

struct BalanceStep {
  Tensor bias;   // [L, C] f32 in and out
  Tensor m;      // [L, C] f32 in and out
  Tensor v;      // [L, C] f32 in and out
  Tensor load;   // [L, C] i64 in: tokens of the global batch sent to each class
  double lr;     // of this step
  int64_t step;  // 1 for the first
  const BalanceOptions& options;
};

void balance_step(const BalanceStep& a);

}  // namespace moraine
