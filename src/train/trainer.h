// Trainer: the memory of a run, and one optimizer step.
//
// Gradients are summed per slot, then over slots in a fixed tree; counts are integers. No bit of a
// step depends on threads, recomputation, or who summed which slots. A dry arena plans the same
// memory (`moraine plan memory`).
#pragma once

#include <memory>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "data/loader.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "train/run_config.h"
#include "train/slot_tree.h"
#include "train/timeline.h"

namespace moraine {

struct StepResult {
  double loss = 0;            // mean over targets
  double gradient_norm = 0;   // of the mean gradient, before clipping
  double gradient_scale = 0;  // 1 / targets, times what clipping takes
  int64_t targets = 0;
  bool finite = true;  // loss and norm are numbers
};

class Trainer {
 public:
  // config.model.vocab_size must be known. Takes everything from `arena`.
  Trainer(Arena& arena, Pool& pool, const RunConfig& config, const Timeline& timeline);

  // Reads sequences [first, first + count) of the current step.
  using Read = std::function<void(int64_t first, int64_t count, SequenceBatch* out)>;

  // Sums gradients over all slots. Weights do not change.
  StepResult compute_gradients(const StepPlan& plan, const Read& read);
  // Moves the weights by what compute_gradients left. lr_scale: of the schedule and the phase.
  void apply(const StepPlan& plan, const StepResult& result, double lr_scale);

  // Gradients of slots [begin, end) only, as the root of their subtree (end - begin a power of two,
  // begin its multiple): what a rank computes. Adds to load, losses [slots] and targets.
  void compute_slots(const StepPlan& plan, const Read& read, int64_t begin, int64_t end,
                     SlotTree& tree, std::vector<double>& losses, int64_t& targets);

  void initialize(uint64_t seed);
  void refresh() { model_->refresh(ctx_); }

  Context& ctx() { return ctx_; }
  Model& model() { return *model_; }
  const RunConfig& config() const { return config_; }
  const Tensor& master() const { return master_; }
  const Tensor& load() const { return load_; }  // [L, classes] i64 of the last step
  Optimizer& optimizer() { return *optimizer_; }
  const Tensor& gradients() const { return gradients_; }  // root of the last step's tree

  // Weights and optimizer state by name, live.
  std::vector<CheckpointTensor> state() const;
  // Copies the live state into the private copy and returns that (memory of category "copy").
  std::vector<CheckpointTensor> copy_state();
  // Fills the live state. Errors: those of Checkpoint::read.
  void restore(const Checkpoint& checkpoint);

 private:
  double run_micro_batch(const SequenceBatch& data, const Tensor& gradients);
  void enter_phase(int64_t phase);

  RunConfig config_;
  Context ctx_;
  Tensor master_, gradients_, load_, position_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<SlotTree> tree_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<Tensor> copies_;  // as state()
  int64_t phase_ = -1;
  SequenceBatch data_;
};

}  // namespace moraine
