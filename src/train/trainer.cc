// One step: slots, tree, norm, optimizer.
#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/elementwise.h"
#include "model/model_directory.h"
#include "optim/clip.h"

namespace moraine {
namespace {

struct Extents {
  int64_t rows = 0;       // most rows of a forward pass
  int64_t positions = 0;  // longest sequence
};

int64_t micro_sequences(const RunConfig& c, const StepPlan& plan) {
  const int64_t per_slot = plan.num_sequences / c.train.slots;
  return c.train.micro_sequences > 0 && per_slot % c.train.micro_sequences == 0
             ? c.train.micro_sequences
             : per_slot;
}

// Over all phases and ramp sizes. Validation reads sequences of train.sequence, though no phase
// may.
Extents extents(const RunConfig& c, const Timeline& timeline) {
  Extents e{.rows = c.train.sequence, .positions = c.train.sequence};
  for (const StepPlan& plan : timeline.kinds()) {
    e.rows = std::max(e.rows, micro_sequences(c, plan) * plan.sequence);
    e.positions = std::max(e.positions, plan.sequence);
  }
  return e;
}

// The tree of SlotTree, on numbers: neighbours first.
double tree_sum(std::vector<double> values) {
  for (; values.size() > 1; values.resize(values.size() / 2)) {
    for (size_t i = 0; i < values.size() / 2; ++i) values[i] = values[2 * i] + values[2 * i + 1];
  }
  return values[0];
}

}  // namespace

Trainer::Trainer(Arena& arena, Pool& pool, const RunConfig& config, const Timeline& timeline)
    : config_(config) {
  const ParameterTable table = build_parameters(config.model);
  const Extents e = extents(config, timeline);
  ctx_ = make_context(Backend::kCpu, pool, arena);
  master_ = arena.take("weights.master", "weights", DType::kF32, {table.total_count});
  model_ = std::make_unique<Model>(
      arena, config.model,
      ModelOptions{
          .compute = compute_dtype(config),
          .tokens = e.rows,
          .positions = e.positions,
          .training = true,
          .recompute = config.train.recompute == "layer" ? Recompute::kLayer : Recompute::kNone},
      master_);
  tree_ = std::make_unique<SlotTree>(arena, config.train.slots, table.total_count);
  if (!config.model.dense())
    load_ = arena.take("router.load", "scratch", DType::kI64,
                       {config.model.layers, config.model.classes()});
  position_ = arena.take("batch.position", "scratch", DType::kI32, {e.rows});
  const std::vector<ParameterSpec> specs = optimizer_specs(config, table);
  optimizer_ = std::make_unique<Optimizer>(specs, optimizer_options(config), pool.threads(), arena);
  for (const CheckpointTensor& t : state()) {
    Tensor copy = t.tensor;
    copy.data = arena.take_bytes("checkpoint." + t.name.substr(0, t.name.find('.')), "copy",
                                 t.tensor.bytes());
    copies_.push_back(copy);
  }
}

void Trainer::initialize(uint64_t seed) {
  initialize_parameters(model_->table(), config_.model, seed, master_);
}

void Trainer::enter_phase(int64_t phase) {
  if (phase == phase_) return;
  phase_ = phase;
  const double theta = config_.phases[static_cast<size_t>(phase)].rope_theta;
  model_->set_rope_theta(ctx_, theta > 0 ? theta : config_.model.rope_theta,
                         config_.model.sliding_rope_theta);
}

double Trainer::run_micro_batch(const SequenceBatch& data, const Tensor& gradients) {
  const int64_t T = static_cast<int64_t>(data.tokens.size());
  Batch batch{.token = make_tensor(const_cast<int32_t*>(data.tokens.data()), DType::kI32, {T}),
              .position = position_.rows(0, T),
              .segments = {}};
  set_documents(batch, data.segment_begin);
  const Tensor target = make_tensor(const_cast<int32_t*>(data.targets.data()), DType::kI32, {T});
  return model_->loss_and_gradients(ctx_, batch, target, gradients, load_);
}

void Trainer::compute_slots(const StepPlan& plan, const Read& read, int64_t begin, int64_t end,
                            SlotTree& tree, std::vector<double>& losses, int64_t& targets) {
  enter_phase(plan.phase);
  const int64_t per_slot = plan.num_sequences / config_.train.slots,
                micro = micro_sequences(config_, plan);
  for (int64_t slot = begin; slot < end; ++slot) {
    const Tensor gradients = tree.begin_slot(ctx_);
    double loss = 0;
    for (int64_t at = 0; at < per_slot; at += micro) {
      read(slot * per_slot + at, micro, &data_);
      loss += run_micro_batch(data_, gradients);
      targets += data_.num_targets;
    }
    losses[static_cast<size_t>(slot)] = loss;
    tree.add(ctx_);
  }
}

StepResult Trainer::compute_gradients(const StepPlan& plan, const Read& read) {
  if (!load_.empty()) std::memset(load_.data, 0, static_cast<size_t>(load_.bytes()));
  std::vector<double> losses(static_cast<size_t>(config_.train.slots), 0.0);
  StepResult result;
  compute_slots(plan, read, 0, config_.train.slots, *tree_, losses, result.targets);
  gradients_ = tree_->root();
  const double targets = static_cast<double>(std::max<int64_t>(1, result.targets));
  result.loss = tree_sum(losses) / targets;
  const Clip clip =
      clip_factor(sum_of_squares(ctx_, gradients_), 1 / targets, config_.train.clip_norm);
  result.gradient_norm = clip.norm;
  result.gradient_scale = clip.factor;
  result.finite = std::isfinite(result.loss) && !clip.skip;
  return result;
}

void Trainer::apply(const StepPlan& plan, const StepResult& result, double lr_scale) {
  MR_CHECK(result.finite);
  optimizer_->step(ctx_, {.weights = master_,
                          .gradients = gradients_,
                          .load = load_,
                          .gradient_scale = result.gradient_scale,
                          .lr_scale = lr_scale,
                          .step = plan.step + 1});
  refresh();
}

std::vector<CheckpointTensor> Trainer::state() const {
  std::vector<CheckpointTensor> tensors;
  for (const Parameter& p : model_->table().all)
    tensors.push_back({kWeightPrefix + p.name, view(p, master_)});
  for (const OptimizerTensor& t : optimizer_->state())
    tensors.push_back({"optimizer." + t.name, t.tensor});
  return tensors;
}

std::vector<CheckpointTensor> Trainer::copy_state() {
  std::vector<CheckpointTensor> tensors = state();
  for (size_t i = 0; i < tensors.size(); ++i) {
    Tensor& live = tensors[i].tensor;
    std::memcpy(copies_[i].data, live.data, static_cast<size_t>(live.bytes()));
    live = copies_[i];
  }
  return tensors;
}

void Trainer::restore(const Checkpoint& checkpoint) {
  for (const CheckpointTensor& t : state()) checkpoint.read(t.name, t.tensor);
  refresh();
}

}  // namespace moraine
