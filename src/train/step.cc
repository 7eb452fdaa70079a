// One optimizer step: slots, reduce, norm, clip, update.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/fault_point.h"
#include "kernels/host_copy.h"
#include "optim/clip.h"
#include "train/step_layout.h"
#include "train/trainer.h"

namespace moraine {
namespace {

// From this rank's slots to those of all ranks: losses in their places, exact integers.
void sum_over_ranks(Context& ctx, Ranks& ranks, StepSums& sums) {
  if (ranks.mesh.ranks == 1) return;
  fault_point("step.gradients_reduced");
  const OpTimer timer(ctx.profile, Span::kRanks, "ranks: counts");
  all_reduce_disjoint(ranks.world, sums.losses);
  std::span<int64_t> load;
  if (!sums.load.empty()) load = {sums.load.as<int64_t>(), static_cast<size_t>(sums.load.count())};
  std::vector<int64_t> counts = {sums.targets};
  counts.insert(counts.end(), load.begin(), load.end());
  all_reduce_sum(ranks.world, counts);
  sums.targets = counts[0];
  std::copy(counts.begin() + 1, counts.end(), load.begin());
}

}  // namespace

StepResult Trainer::step(const StepPlan& plan, double lr_scale, const Read& read,
                         SpikeDetector& spike, bool verify) {
  enter_phase(plan.phase);
  ranks_->set_step(plan.step + 1);
  const Mesh& mesh = ranks_->mesh;
  const int64_t slots = config_.train.slots / mesh.data();
  fault_tensor(ctx_, "step.weights", master_);
  Verified verified;
  if (verify) verified = begin_verified(plan, slots, read);
  StepSums sums = take_slots(plan, slots, read, verify ? &verified : nullptr);

  // Reduce: from here on each rank has what it owns of the sum over all slots of all ranks.
  gradients_ = reducer_->finish(ctx_);
  StepResult result;
  observe_experts(result);
  sum_over_ranks(ctx_, *ranks_, sums);

  // Norm and clip. Gradients stay those of the SUM of losses: division by the number of targets,
  // and clipping, are one factor that the update applies as it reads.
  // Nothing to learn (packed conversations may have stretches without an answer): nothing moves, no loss is known.
  // All ranks have the same count.
  Clip clip;
  result.loss = NAN;
  result.targets = sums.targets;
  if (sums.targets > 0) {
    fault_point("step.counts_summed");
    const double targets = static_cast<double>(sums.targets);
    const double squares = norm_->sum_of_squares(ctx_, gradients_, ranks_->world);
    clip = clip_factor(squares, 1 / targets, config_.train.clip_norm);
    result.loss = slot_tree_sum(sums.losses) / targets;
    result.gradient_norm = clip.norm;
  }

  if (verify) {
    result.verdict =
        judge(plan, verified, {result.loss, clip.norm, clip.factor, sums.targets}, read);
    result.verified = result.verdict.agreed();
    if (!result.verified) return result;
  }
  if (sums.targets == 0) return result;

  // The same on all ranks: they have seen the same numbers. If they are bad a rank may be, and not the data.
  const SpikeDetector before = spike;
  result.bad = spike.observe(result.loss, result.gradient_norm) || clip.skip;
  if (result.bad && seal_ != nullptr && !verify) {
    spike = before;
    return step(plan, lr_scale, read, spike, /*verify=*/true);
  }
  if (result.bad) return result;
  update({.weights = master_,
          .gradients = gradients_,
          .load = load_,
          .gradient_scale = clip.factor,
          .lr_scale = lr_scale,
          .step = plan.step + 1},
         /*is_checked=*/verify);
  if (placer_ != nullptr) result.placed = placer_->place(plan.step + 1);
  model_->refresh(ctx_);
  return result;
}

// Owners move their parts of the weights, and everybody gets them.
void Trainer::update(OptimizerStep a, bool is_checked) {
  if (seal_ != nullptr && !is_checked) {
    const OpTimer timer(ctx_.profile, Span::kPhase, "verify");
    seal_->begin_update(ctx_);
  }
  const OpTimer timer(ctx_.profile, Span::kPhase, "optimizer");
  const std::vector<DistributedOptimizer*>& all = optimizers_->all();
  for (size_t i = 0; i < all.size(); ++i) {
    if (seal_ != nullptr) a.seen = seal_->seen(i);
    all[i]->step(ctx_, a);
    if (seal_ != nullptr) seal_->check_moved(i);
    all[i]->gather(ctx_, master_, way_);
  }
  fault_point("step.updated");
  fault_tensor(ctx_, "step.weights_gathered", master_);
  if (seal_ == nullptr) return;
  const OpTimer verify(ctx_.profile, Span::kPhase, "verify");
  seal_->end_update(ctx_);
}

// From here on gradients are this rank's own sums; the last slot's may be on their way already.
StepSums Trainer::take_slots(const StepPlan& plan, int64_t slots, const Read& read,
                             Verified* verified) {
  const Mesh& mesh = ranks_->mesh;
  const int64_t first = mesh.data_rank() * slots;
  StepSums sums{
      .losses = std::vector<double>(static_cast<size_t>(config_.train.slots * mesh.context)),
      .load = load_};
  if (!load_.empty()) std::memset(load_.data, 0, static_cast<size_t>(load_.bytes()));
  if (exchange_ != nullptr)
    exchange_->take_work();  // of validation, samples and other ranks' slots
  SlotSum sum;
  GradientReducer::Seen seen;
  if (verified != nullptr)
    seen = [&](const Tensor& gradients) { verified->own = hash_slot(gradients, sum, 0); };
  // Each one's gradients go into the tree; the last one's leave while its backward runs.
  reducer_->begin(slots, verified != nullptr ? verified->index : -1, seen);
  for (int64_t slot = first; slot < first + slots; ++slot) {
    const GradientSink sink = reducer_->begin_slot(ctx_);
    sum = backward_slot(plan, slot, read, sink);
    reducer_->end_slot(ctx_);
    sums.losses[static_cast<size_t>(slot * mesh.context + mesh.context_rank())] = sum.loss;
    sums.targets += sum.targets;
  }
  return sums;
}

// Loads are still those of this rank's own rows.
void Trainer::observe_experts(StepResult& result) {
  if (exchange_ == nullptr) return;
  const ExpertWork work = exchange_->take_work();
  result.rank_load_over_mean = work.busiest_over_mean(exchange_->senders());
  result.expert_seconds = work.seconds;
  result.home_load_over_mean = work.home_busiest_over_mean(exchange_->senders());
  if (placer_ != nullptr) placer_->observe(load_, work);
}

SlotSum Trainer::backward_slot(const StepPlan& plan, int64_t slot, const Read& read,
                               const GradientSink& sink) {
  const int64_t sequences = slot_sequences(config_, plan), micro = micro_sequences(config_, plan);
  SlotSum sum;
  for (int64_t at = 0; at < sequences; at += micro) {
    fault_point("step.micro_batch");
    {
      const OpTimer timer(ctx_.profile, Span::kPhase, "data");
      read(slot * sequences + at, micro, &data_);
    }
    const ContextBatch rows = my_rows(data_, plan.sequence);
    const bool last = at + micro == sequences;
    sum.loss += model_->loss_and_gradients(ctx_, rows.batch, rows.target,
                                           last ? sink : GradientSink{sink.sum}, load_);
    sum.targets += rows.num_targets;
  }
  if (context_ != nullptr) context_->end();  // validation and samples have whole sequences
  return sum;
}

// All rows of the sequences, or those that this rank has of them.
ContextBatch Trainer::my_rows(const SequenceBatch& data, int64_t length) {
  const int64_t T = static_cast<int64_t>(data.tokens.size());
  const Mesh& mesh = ranks_->mesh;
  if (mesh.context > 1) {
    ContextRows place =
        make_context_rows({.ranks = mesh.context, .sequences = T / length, .length = length},
                          mesh.context_rank(), data.segment_begin);
    ContextBatch mine = context_batch(place, data.tokens, data.targets, rows_);
    context_->begin(ctx_, ranks_->context(), std::move(place));
    return mine;
  }
  const auto view_of = [&](const std::vector<int32_t>& values) {
    return make_tensor(const_cast<int32_t*>(values.data()), DType::kI32, {T});
  };
  ContextBatch rows{.batch = {.token = view_of(data.tokens),
                              .position = rows_.position.rows(0, T),
                              .segments = {}},
                    .target = view_of(data.targets),
                    .num_targets = data.num_targets};
  set_documents(rows.batch, data.segment_begin);
  return rows;
}

}  // namespace moraine
