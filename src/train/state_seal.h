// StateSeal: whether the memory of a rank still holds between two steps what was put there.
//
//   close   after loading: takes the hashes of all weights held here, and of the optimizer state that this rank owns
//   check   before a save, and after a copy for saving: they must be the same
//
// An update would read it twice. What AdamW moves it sums up itself as it reads and writes it (optim/adamw.h); so
//
//   begin_update   checks the rest
//   seen           for the step of an optimizer
//   check_moved    after it, before other ranks get what has moved: what it read must be what was closed
//   end_update     closes the rest
//
// So a bit that flips in memory at rest is found by the rank itself, before others get the weights of that update.
// Gradients that were computed with it may have left; nothing is stored without a word of every rank. What an update
// computes wrongly is closed as it is: ranks compare weights among each other (step_verdict.h).
//
// Errors: kRankDiverged, from each check: what has changed.
// Cost:   close, check, weights and experts read what they name once; of an update: docs/distributed.md.
#pragma once

#include <vector>

#include "model/parameters.h"
#include "optim/flat_math.h"
#include "train/optimizer_groups.h"
#include "train/state_hash.h"

namespace moraine {

class StateSeal {
 public:
  // master: weights of `table`. Memory outlives it.
  StateSeal(const ParameterTable& table, const Tensor& master, const OptimizerGroups& optimizers,
            Backend backend);

  void close(Context& ctx);
  void check(Context& ctx);  // nothing before the first close

  void begin_update(Context& ctx);
  AdamWSeen* seen(
      size_t optimizer);  // of OptimizerGroups::all(); null on a device: all is the rest
  void check_moved(size_t optimizer);
  void end_update(Context& ctx);

  // As they are now.
  Hash128 weights(Context& ctx) { return weights_.digest(ctx); }  // that every rank has
  Hash128 experts(Context& ctx) { return experts_.digest(ctx); }

 private:
  StateHash weights_, experts_;
  struct Moved {  // by AdamW
    AdamWMemory memory;
    AdamWSums closed;
    AdamWSeen seen;
  };
  StateHash weights_at_rest_, state_at_rest_;  // the rest
  Hash128 closed_weights_, closed_state_;
  std::vector<Moved> moved_;  // of each optimizer; none on a device
  bool is_closed_ = false;
};

// What every rank has of a flat buffer, weights or gradients: before the experts, and behind them.
std::vector<Tensor> shared_parts(const ParameterTable& table, const Tensor& flat);

}  // namespace moraine
