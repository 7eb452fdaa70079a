// Trainer: the memory of a run on this rank, and one optimizer step of all ranks together.
//
// Gradients are summed per slot, then over slots in a fixed tree, whose upper levels are the ranks;
// counts are integers. No bit of a step depends on threads, recomputation, the number of ranks, or
// which of them holds which expert; it does on who shares a sequence, and with a bf16 reduce
// dtype on the number of ranks (docs/distributed.md). A dry arena plans the same memory
// (`moraine plan memory`).
//
// The step itself is Trainer::step, in train/step.cc; what ranks check of each other, in train/verify_step.cc.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/distributed.h"
#include "data/loader.h"
#include "model/context_batch.h"
#include "model/model.h"
#include "parallel/expert_placer.h"
#include "parallel/ranks.h"
#include "train/gradient_norm.h"
#include "train/gradient_reducer.h"
#include "train/optimizer_groups.h"
#include "train/spike.h"
#include "train/state_seal.h"
#include "train/step_verdict.h"
#include "train/trainer_options.h"

namespace moraine {

struct StepResult {
  double loss = 0;           // mean over targets; NaN without any: then nothing has moved
  double gradient_norm = 0;  // of the mean gradient, before clipping
  int64_t targets = 0;
  bool bad = false;  // loss or norm is not finite, or a spike: nothing has moved
  // With experts on other ranks: rows of the busiest rank of this one's expert group over the mean, and what it
  // would be if each served its own experts alone; else NaN.
  double rank_load_over_mean = NAN, home_load_over_mean = NAN;
  double expert_seconds = 0;  // of computing rows of experts, on this rank, if they are divided
  std::optional<PlacementChange> placed = {};  // from the next step on
  bool verified = false;                       // ranks have checked each other
  StepVerdict verdict = {};                    // of that; if they do not agree nothing has moved
};

// What one slot adds beside its gradients.
struct SlotSum {
  double loss = 0;
  int64_t targets = 0;
};

// What all slots do.
struct StepSums {
  std::vector<double> losses;  // [slots * ranks of a sequence] each one's own
  int64_t targets = 0;
  Tensor load;  // [L, classes] i64; empty if dense
};

class Trainer {
 public:
  // config.model.vocab_size must be known. Takes everything from `arena`.
  Trainer(Arena& arena, Pool& pool, const RunConfig& config, const Timeline& timeline, Ranks& ranks,
          const TrainerOptions& options = {});

  // Reads sequences [first, first + count) of the current step.
  using Read = std::function<void(int64_t first, int64_t count, SequenceBatch* out)>;

  // lr_scale: of the schedule and the phase. verify: ranks check each other before anything moves; a bad step is taken
  // once more so, unless config.train.verify_every_steps is 0. Collective. Errors: kRankDiverged: the weights or the
  // state of this rank have changed by themselves since the step before.
  StepResult step(const StepPlan& plan, double lr_scale, const Read& read, SpikeDetector& spike,
                  bool verify = false);

  // What differs by phase: the ranks that share a sequence, the rotary base. Collective.
  void enter_phase(int64_t phase);
  // Adds one slot's gradients to `sink`, whose layer_done is called in the last backward pass only,
  // and its loads to load(). The phase must have been entered. Collective.
  SlotSum backward_slot(const StepPlan& plan, int64_t slot, const Read& read,
                        const GradientSink& sink);

  void initialize(uint64_t seed);
  // `fill` writes the flat buffer of all weights held here, in the host's memory.
  void set_weights(const std::function<void(const Tensor& flat)>& fill);
  // After the weights were set.
  void refresh();

  Context& ctx() { return ctx_; }
  Model& model() { return *model_; }
  Ranks& ranks() { return *ranks_; }
  const RunConfig& config() const { return config_; }
  const Tensor& master() const { return master_; }                    // where it computes
  const ExpertExchange* exchange() const { return exchange_.get(); }  // null: all experts are here
  const GuestExperts* guests() const { return guests_.get(); }
  const Tensor& load() const { return load_; }  // [L, classes] i64 of the last step
  // Of the last step: the sum of slots; this rank's own parts are those of all ranks.
  const Tensor& gradients() const { return gradients_; }

  // This rank's part of weights and optimizer state, live: with all ranks' every row once.
  std::vector<TensorRows> saved_rows() const;
  // The same where the host can read it now: live, or copied.
  std::vector<TensorRows> readable_rows();
  // Copies it into the private copy and returns that (memory of category "copy"). Errors: those of check_state.
  std::vector<TensorRows> copy_saved_rows();
  // Between steps. Errors: kRankDiverged: it has changed by itself.
  void check_state();
  // Whether ranks have the same weights, as they were when the last step was done. Collective.
  StepVerdict compare_weights();
  // Ranks compare what they have computed, or have found that it differs: until all agree.
  bool is_judging() const { return is_judging_; }
  // Fills the live state from a checkpoint of any mesh. Errors: those of Checkpoint::read.
  void restore(const Checkpoint& checkpoint);

 private:
  void make_experts(Arena& arena, const TrainerOptions& options);
  void observe_experts(StepResult& result);
  ContextBatch my_rows(const SequenceBatch& data, int64_t length);

  // One of this rank's slots, as long as ranks check each other.
  struct Verified {
    int64_t index = 0;  // among this rank's slots
    SlotHash own, again;
  };
  struct Numbers {  // of a step, the same on all ranks
    double loss, norm, factor;
    int64_t targets;
  };
  StepSums take_slots(const StepPlan& plan, int64_t slots, const Read& read, Verified* verified);
  void update(OptimizerStep a, bool is_checked);  // is_checked: nothing at rest has changed
  Verified begin_verified(const StepPlan& plan, int64_t slots, const Read& read);
  StepVerdict judge(const StepPlan& plan, const Verified& slot, const Numbers& numbers,
                    const Read& read);
  SlotHash other_slot(const StepPlan& plan, int64_t index, int shift, const Read& read);
  SlotHash hash_slot(const Tensor& gradients, const SlotSum& sum, int shift);
  void close_state();

  RunConfig config_;
  Ranks* ranks_;
  Context ctx_;
  std::unique_ptr<ExpertExchange> exchange_;  // null: all experts are here
  std::unique_ptr<GuestExperts> guests_;      // null: each rank serves its own experts alone
  std::unique_ptr<ExpertPlacer> placer_;      // likewise
  std::unique_ptr<ContextParallel> context_;  // null: no phase shares sequences
  Tensor master_, gradients_, load_;
  ContextBatchMemory rows_;  // [most rows] i32 each
  std::unique_ptr<Model> model_;
  std::unique_ptr<OptimizerGroups> optimizers_;
  std::unique_ptr<Staging> staging_;  // null: no device, one rank, or links
  DeviceWay way_;                     // of a device with other ranks
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<GradientNorm> norm_;
  std::unique_ptr<StateSeal> seal_;  // null: nothing is checked
  std::vector<Tensor> copies_;       // as saved_rows()
  int64_t phase_ = -1;
  bool is_judging_ = false;
  SequenceBatch data_;
};

}  // namespace moraine
