// StateSeal: whether the memory of a rank still holds between two steps what was put there.
//
//   close   after an update, or after loading: takes the hashes of all weights held here, and of the optimizer
//           state that this rank owns
//   check   before the next update, and after a copy for saving: they must be the same
//
// So a bit that flips in memory at rest is found by the rank itself, before anything is made of it. What an update
// computes wrongly is closed as it is: ranks compare weights among each other (step_verdict.h).
//
// Errors: kRankDiverged, from check: which part has changed.
// Cost:   each reads the state once.
#pragma once

#include <vector>

#include "model/parameters.h"
#include "train/optimizer_groups.h"
#include "train/state_hash.h"

namespace moraine {

class StateSeal {
 public:
  // master: weights of `table`. Memory outlives it.
  StateSeal(const ParameterTable& table, const Tensor& master, const OptimizerGroups& optimizers);

  void close(Context& ctx);
  void check(Context& ctx);  // nothing before the first close

  // As closed.
  const Hash128& weights() const { return closed_[kWeights]; }  // that every rank has
  const Hash128& experts() const { return closed_[kExperts]; }

 private:
  enum Part { kWeights, kExperts, kOptimizer, kParts };
  StateHash parts_[kParts];
  Hash128 closed_[kParts];
  bool is_closed_ = false;
};

// What every rank has of a flat buffer, weights or gradients: before the experts, and behind them.
std::vector<Tensor> shared_parts(const ParameterTable& table, const Tensor& flat);

}  // namespace moraine
