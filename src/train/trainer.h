// Trainer: the memory of a run on this rank, and one optimizer step of all ranks together.
//
// Gradients are summed per slot, then over slots in a fixed tree, whose upper levels are the ranks;
// counts are integers. No bit of a step depends on threads, recomputation, the number of ranks, or
// which of them holds which expert; it does on who shares a sequence, and with gradients as bf16 on
// the wire on the number of ranks (docs/distributed.md). A dry arena plans the same memory
// (`moraine plan memory`).
//
//   slots of this rank -> sources of its experts -> ranks: reduced to the owners, in buckets, while
//   backward still runs -> norm -> owners step -> weights to all
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "checkpoint/sharded.h"
#include "comm/stream.h"
#include "data/loader.h"
#include "machine/machine.h"
#include "model/context_batch.h"
#include "model/model.h"
#include "parallel/ranks.h"
#include "train/buckets.h"
#include "train/gradient_norm.h"
#include "train/run_config.h"
#include "train/sharded_optimizer.h"
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

// What decides speed and, for sequences on several ranks, the order of sums; the same on all ranks.
struct TrainerOptions {
  int64_t bucket_bytes = int64_t{4} << 20;
  ContextVariant variant = ContextVariant::kRing;
};
// From [parallel] and, where that leaves it open, the machine file (without one: nominal rates, so
// that the choice is no accident of a measurement).
TrainerOptions trainer_options(const RunConfig& config, const Timeline& timeline,
                               const Machine& machine);

// What slots add up to.
struct SlotSums {
  SlotTree* tree = nullptr;
  std::vector<double> losses = {};  // [slots] each slot's own
  int64_t targets = 0;
  // During the last slot's last backward: layer by layer, its matrices are complete for this rank.
  // Then the caller folds and closes the slot.
  std::function<void(int64_t layer)> after_last_backward = {};
};

class Trainer {
 public:
  // config.model.vocab_size must be known. Takes everything from `arena`.
  Trainer(Arena& arena, Pool& pool, const RunConfig& config, const Timeline& timeline, Ranks& ranks,
          const TrainerOptions& options = {});

  // Reads sequences [first, first + count) of the current step.
  using Read = std::function<void(int64_t first, int64_t count, SequenceBatch* out)>;

  // Sums gradients over all slots of all ranks. Weights do not change. Collective.
  StepResult compute_gradients(const StepPlan& plan, const Read& read);
  // Moves the weights by what compute_gradients left. lr_scale: of the schedule and the phase.
  void apply(const StepPlan& plan, const StepResult& result, double lr_scale);

  // Gradients of slots [begin, end) only, as the root of their subtree (end - begin a power of two,
  // begin its multiple): a rank's share.
  void compute_slots(const StepPlan& plan, const Read& read, int64_t begin, int64_t end,
                     SlotSums& sums);

  void initialize(uint64_t seed);
  void refresh() { model_->refresh(ctx_); }

  Context& ctx() { return ctx_; }
  Model& model() { return *model_; }
  Ranks& ranks() { return *ranks_; }
  const Mesh& mesh() const { return mesh_; }  // of the phase that was entered last
  const RunConfig& config() const { return config_; }
  const Tensor& master() const { return master_; }
  const Tensor& load() const { return load_; }  // [L, classes] i64 of the last step
  // Root of the last step's tree; this rank's own parts are those of all ranks.
  const Tensor& gradients() const { return gradients_; }

  // This rank's part of weights and optimizer state, live: with all ranks' every row once.
  std::vector<ShardTensor> shard() const;
  // Copies it into the private copy and returns that (memory of category "copy").
  std::vector<ShardTensor> copy_shard();
  // Fills the live state from a checkpoint of any mesh. Errors: those of Checkpoint::read.
  void restore(const Checkpoint& checkpoint);

 private:
  struct Rows {
    Batch batch;
    Tensor target;
    int64_t num_targets = 0;
  };
  Rows my_rows(const SequenceBatch& data, int64_t length);
  void enter_phase(int64_t phase);
  void leave(const Bucket& bucket);
  void fold_experts(Range part);
  void leave_rest();
  void sum_counts(SlotSums& sums);

  RunConfig config_;
  Ranks* ranks_;
  Mesh mesh_;
  Context ctx_;
  std::unique_ptr<ExpertExchange> exchange_;  // null: all experts are here
  std::unique_ptr<ContextParallel> context_;  // null: no phase shares sequences
  Tensor master_, gradients_, load_;
  ShardMemory rows_;  // [most rows] i32 each
  std::unique_ptr<Model> model_;
  std::unique_ptr<SlotTree> tree_;
  std::unique_ptr<ShardedOptimizer> shared_, experts_;  // experts_: null if dense
  std::unique_ptr<GradientNorm> norm_;
  std::vector<Bucket> buckets_;
  std::unique_ptr<CommStream> stream_;  // null: one rank
  std::vector<CommHandle> leaving_;
  std::vector<Tensor> copies_;  // as shard()
  int64_t phase_ = -1;
  SequenceBatch data_;
};

}  // namespace moraine
