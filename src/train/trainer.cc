// One step: slots, tree, ranks, norm, optimizer.
#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/fault_point.h"
#include "kernels/elementwise.h"
#include "model/model_directory.h"
#include "optim/clip.h"
#include "parallel/context_cost.h"
#include "train/shard.h"

namespace moraine {
namespace {

struct Extents {
  int64_t rows = 0;       // most rows of a forward pass on one rank
  int64_t positions = 0;  // longest sequence
  int64_t slots = 1;      // most slots of a rank
  ContextLayout shared;   // largest batch of sequences that ranks share; ranks == 1: none
};

int64_t micro_sequences(const RunConfig& c, const StepPlan& plan) {
  const int64_t per_slot = plan.num_sequences / c.train.slots;
  return c.train.micro_sequences > 0 && per_slot % c.train.micro_sequences == 0
             ? c.train.micro_sequences
             : per_slot;
}

ContextLayout layout_of(const RunConfig& c, const StepPlan& plan) {
  return {.ranks = phase_context(c, plan.phase),
          .sequences = micro_sequences(c, plan),
          .length = plan.sequence};
}

// Over all phases and ramp sizes. Validation reads sequences of train.sequence, though no phase
// may.
Extents extents(const RunConfig& c, const Timeline& timeline, const Mesh& mesh) {
  Extents e;
  e.rows = e.positions = c.train.sequence;
  for (const StepPlan& plan : timeline.kinds()) {
    const ContextLayout layout = layout_of(c, plan);
    if (layout.ranks > 1) check_context(layout);
    e.rows = std::max(e.rows, layout.most_rows());
    e.positions = std::max(e.positions, plan.sequence);
    e.slots = std::max(e.slots, c.train.slots * layout.ranks / mesh.ranks);
    if (layout.ranks > 1 && layout.rows() > e.shared.rows()) e.shared = layout;
  }
  return e;
}

// Every phase's degree must fit the ranks.
void check_phases(const RunConfig& c, const Mesh& mesh) {
  for (size_t i = 0; i < c.phases.size(); ++i) {
    make_mesh(mesh.ranks, mesh.rank, mesh.expert, phase_context(c, static_cast<int64_t>(i)),
              c.train.slots, c.model.experts);
  }
}

std::unique_ptr<ContextParallel> make_context(Arena& arena, const RunConfig& c,
                                              const Timeline& timeline, ContextVariant variant) {
  std::optional<ContextSizes> most;
  for (const StepPlan& plan : timeline.kinds()) {
    const ContextLayout layout = layout_of(c, plan);
    if (layout.ranks == 1) continue;
    const ContextSizes sizes = context_sizes(
        c.model,
        {.variant = variant, .most = layout, .compute = compute_dtype(c), .training = true});
    most = most ? larger_of(*most, sizes) : sizes;
  }
  return most ? std::make_unique<ContextParallel>(arena, *most) : nullptr;
}

// The tree of SlotTree, on numbers: neighbours first.
double tree_sum(std::vector<double> values) {
  for (; values.size() > 1; values.resize(values.size() / 2)) {
    for (size_t i = 0; i < values.size() / 2; ++i) values[i] = values[2 * i] + values[2 * i + 1];
  }
  return values[0];
}

// The list of one group: what every rank has, or the experts.
std::vector<ParameterSpec> group_specs(const RunConfig& c, const ParameterTable& table,
                                       bool experts) {
  std::vector<ParameterSpec> group;
  const std::vector<ParameterSpec> specs = optimizer_specs(c, table);
  for (size_t i = 0; i < specs.size(); ++i) {
    if ((table.all[i].kind == Parameter::Kind::kExperts) == experts) group.push_back(specs[i]);
  }
  return group;
}

// Without a measured curve: a message between processes of one host, and half a core.
constexpr double kNominalAlpha = 5e-6, kNominalBeta = 5e9, kNominalFlops = 50e9,
                 kNominalMemory = 10e9;

// Buffers of whole sequences beyond this are the ring's case: a fixed number, so that the choice,
// and with it the bits, are no accident of the machine.
constexpr int64_t kGatherBytes = int64_t{1} << 30;

ContextVariant context_variant(const RunConfig& c, const Timeline& timeline,
                               const Machine& machine) {
  if (c.parallel.attention == "ring") return ContextVariant::kRing;
  if (c.parallel.attention == "gather") return ContextVariant::kAllGather;
  const bool measured = machine.comm.ranks > 0;
  ContextVariant variant = ContextVariant::kAllGather;
  int64_t most = 0;
  for (const StepPlan& plan : timeline.kinds()) {
    const ContextLayout layout = layout_of(c, plan);
    if (layout.ranks == 1 || layout.rows() <= most) continue;
    most = layout.rows();
    const double gflops = matmul_gflops(machine, c.train.dtype == "bf16");
    variant =
        choose_context_variant(
            {.alpha_seconds = measured ? machine.comm.message_latency_us * 1e-6 : kNominalAlpha,
             .bytes_per_second = measured ? machine.comm.message_gb_s * 1e9 : kNominalBeta,
             .flops_per_second =
                 measured ? gflops * 1e9 / std::max(1, machine.threads) : kNominalFlops,
             .bytes_per_second_memory = measured ? machine.read_gb_s * 1e9 : kNominalMemory,
             .ranks = layout.ranks,
             .tokens = layout.most_rows(),
             .pairs = layout.sequences * layout.length * layout.length / 2 / layout.ranks,
             .heads = c.model.heads,
             .kv_heads = c.model.kv_heads,
             .head_dim = c.model.head_dim,
             .element_bytes = dtype_bytes(compute_dtype(c)),
             .most_bytes = kGatherBytes})
            .variant;
  }
  return variant;
}

}  // namespace

TrainerOptions trainer_options(const RunConfig& c, const Timeline& timeline,
                               const Machine& machine) {
  return {.bucket_bytes = c.parallel.bucket_bytes > 0 ? c.parallel.bucket_bytes
                                                      : suggested_bucket_bytes(machine),
          .variant = context_variant(c, timeline, machine)};
}

Trainer::Trainer(Arena& arena, Pool& pool, const RunConfig& config, const Timeline& timeline,
                 Ranks& ranks, const TrainerOptions& trainer_options)
    : config_(config), ranks_(&ranks), mesh_(ranks.mesh) {
  const Mesh& mesh = ranks.mesh;
  check_phases(config, mesh);
  const Extents e = extents(config, timeline, mesh);
  ctx_ = make_context(Backend::kCpu, pool, arena);
  if (mesh.expert > 1)
    exchange_ = std::make_unique<ExpertExchange>(ranks.experts, config.model.experts);
  const ParameterTable table = held_parameters(config.model, exchange_.get());
  context_ = make_context(arena, config, timeline, trainer_options.variant);
  master_ = arena.take("weights.master", "weights", DType::kF32, {table.total_count});
  model_ = std::make_unique<Model>(
      arena, config.model,
      ModelOptions{
          .compute = compute_dtype(config),
          .tokens = e.rows,
          .positions = e.positions,
          .training = true,
          .recompute = config.train.recompute == "layer" ? Recompute::kLayer : Recompute::kNone,
          .exchange = exchange_.get(),
          .context = context_.get()},
      master_);
  tree_ = std::make_unique<SlotTree>(arena, e.slots, gradient_count(table, mesh.expert));
  if (!config.model.dense())
    load_ = arena.take("router.load", "scratch", DType::kI64,
                       {config.model.layers, config.model.classes()});
  for (Tensor* t : {&rows_.token, &rows_.position, &rows_.target})
    *t = arena.take("batch.rows", "scratch", DType::kI32, {e.rows});

  const ShardedOptimizerOptions options{
      .rules = optimizer_options(config), .threads = pool.threads(), .wire = gradient_wire(config)};
  norm_ = std::make_unique<GradientNorm>(model_->table());
  std::vector<double> cost(static_cast<size_t>(mesh.ranks / mesh.expert), 0.0);
  if (!config.model.dense()) {
    experts_ = std::make_unique<ShardedOptimizer>(arena, group_specs(config, table, true), options,
                                                  ranks.replicas, cost);
    norm_->own(experts_->specs(), experts_->owned());
  }
  // Every expert group has the same costs, so rank r's is that of replica r / expert.
  std::vector<double> shared_cost;
  for (int r = 0; r < mesh.ranks; ++r)
    shared_cost.push_back(cost[static_cast<size_t>(r / mesh.expert)]);
  shared_ = std::make_unique<ShardedOptimizer>(arena, group_specs(config, table, false), options,
                                               ranks.shared, shared_cost);
  norm_->own(shared_->specs(), shared_->owned());
  if (mesh.ranks > 1) {
    buckets_ = gradient_buckets(table, config.model.layers, trainer_options.bucket_bytes);
    if (!arena.dry()) stream_ = std::make_unique<CommStream>();
  }
  for (const ShardTensor& t : shard()) {
    Tensor copy = t.local;
    copy.data =
        arena.take_bytes("checkpoint." + t.name.substr(0, t.name.find('.')), "copy", copy.bytes());
    copies_.push_back(copy);
  }
}

void Trainer::initialize(uint64_t seed) {
  initialize_parameters(model_->table(), config_.model, seed, master_);
}

void Trainer::enter_phase(int64_t phase) {
  if (phase == phase_) return;
  phase_ = phase;
  mesh_ = with_context(ranks_->mesh, phase_context(config_, phase));
  const double theta = config_.phases[static_cast<size_t>(phase)].rope_theta;
  model_->set_rope_theta(ctx_, theta > 0 ? theta : config_.model.rope_theta,
                         config_.model.sliding_rope_theta);
}

// All rows of the sequences, or those that this rank has of them.
Trainer::Rows Trainer::my_rows(const SequenceBatch& data, int64_t length) {
  const int64_t T = static_cast<int64_t>(data.tokens.size());
  if (mesh_.context > 1) {
    ContextShard shard =
        make_context_shard({.ranks = mesh_.context, .sequences = T / length, .length = length},
                           mesh_.context_rank(), data.segment_begin);
    const ShardBatch mine = shard_batch(shard, data.tokens, data.targets, rows_);
    context_->begin(ranks_->context_of(mesh_.context), std::move(shard));
    return {mine.batch, mine.target, mine.num_targets};
  }
  const auto view_of = [&](const std::vector<int32_t>& values) {
    return make_tensor(const_cast<int32_t*>(values.data()), DType::kI32, {T});
  };
  Rows rows{.batch = {.token = view_of(data.tokens),
                      .position = rows_.position.rows(0, T),
                      .segments = {}},
            .target = view_of(data.targets),
            .num_targets = data.num_targets};
  set_documents(rows.batch, data.segment_begin);
  return rows;
}

void Trainer::compute_slots(const StepPlan& plan, const Read& read, int64_t begin, int64_t end,
                            SlotSums& sums) {
  enter_phase(plan.phase);
  const int64_t per_slot = plan.num_sequences / config_.train.slots,
                micro = micro_sequences(config_, plan);
  for (int64_t slot = begin; slot < end; ++slot) {
    const Tensor gradients = sums.tree->begin_slot(ctx_);
    double loss = 0;
    for (int64_t at = 0; at < per_slot; at += micro) {
      const bool last = slot + 1 == end && at + micro == per_slot;
      fault_point("step.micro_batch");
      read(slot * per_slot + at, micro, &data_);
      const Rows rows = my_rows(data_, plan.sequence);
      if (last) model_->after_backward = sums.after_last_backward;
      loss += model_->loss_and_gradients(ctx_, rows.batch, rows.target, gradients, load_);
      model_->after_backward = nullptr;
      sums.targets += rows.num_targets;
    }
    sums.losses[static_cast<size_t>(slot)] = loss;
    if (slot + 1 < end || !sums.after_last_backward) sums.tree->add(ctx_);
  }
  if (context_ != nullptr) context_->end();  // validation and samples have whole sequences
}

// Experts' gradients of all sources, folded and added up in the order of the slot tree.
void Trainer::fold_experts(Range part) {
  const ParameterTable& table = model_->table();
  const int64_t S = ranks_->mesh.expert, from = part.begin - table.expert_begin,
                to = part.end - table.expert_begin;
  for (int64_t s = 0; s < S; ++s) {
    const int64_t base =
        s == 0 ? table.expert_begin : table.total_count + (s - 1) * table.expert_count();
    tree_->fold(ctx_, base + from, base + to);
  }
  const auto source = [&](int64_t s) {
    return source_experts(table, tree_->current(), s).rows(from, to);
  };
  for (int64_t stride = 1; stride < S; stride *= 2) {
    for (int64_t s = 0; s + stride < S; s += 2 * stride)
      add_into(ctx_, source(s), source(s + stride));
  }
}

void Trainer::leave(const Bucket& bucket) {
  tree_->fold(ctx_, bucket.shared.begin, bucket.shared.end);
  fold_experts(bucket.experts);
  const Tensor gradients = tree_->current();
  fault_point("step.bucket_leaves");
  leaving_.push_back(stream_->submit([this, gradients, bucket] {
    fault_point("step.bucket_moves");
    shared_->reduce(gradients, bucket.shared);
    if (experts_ != nullptr) experts_->reduce(gradients, bucket.experts);
  }));
}

void Trainer::leave_rest() {
  const Tensor gradients = tree_->current();
  for (const Range& part : rest_of_gradients(model_->table(), config_.model.layers)) {
    tree_->fold(ctx_, part.begin, part.end);
    leaving_.push_back(
        stream_->submit([this, gradients, part] { shared_->reduce(gradients, part); }));
  }
  tree_->close_slot();
  fault_point("step.backward_done");
  const OpTimer timer(ctx_.profile, "ranks: gradients (wait)", 0, 0);
  for (CommHandle& handle : leaving_) handle.wait();
  leaving_.clear();
}

// Over all ranks: slot losses, targets, loads.
void Trainer::sum_counts(SlotSums& sums) {
  const Mesh& mesh = mesh_;
  if (mesh.ranks == 1) return;
  std::vector<double> losses(sums.losses.size() * static_cast<size_t>(mesh.context), 0.0);
  for (size_t slot = 0; slot < sums.losses.size(); ++slot)
    losses[slot * static_cast<size_t>(mesh.context) + static_cast<size_t>(mesh.context_rank())] =
        sums.losses[slot];
  fault_point("step.gradients_reduced");
  const OpTimer timer(ctx_.profile, "ranks: counts", 0, 0);
  all_reduce_disjoint(ranks_->world, losses);
  sums.losses = losses;
  std::vector<int64_t> counts = {sums.targets};
  const int64_t loads = load_.empty() ? 0 : load_.count();
  if (loads > 0) counts.insert(counts.end(), load_.as<int64_t>(), load_.as<int64_t>() + loads);
  all_reduce_sum(ranks_->world, counts);
  sums.targets = counts[0];
  if (loads > 0) std::copy(counts.begin() + 1, counts.end(), load_.as<int64_t>());
}

StepResult Trainer::compute_gradients(const StepPlan& plan, const Read& read) {
  enter_phase(plan.phase);
  ranks_->set_step(plan.step + 1);
  if (!load_.empty()) std::memset(load_.data, 0, static_cast<size_t>(load_.bytes()));
  const int64_t slots = config_.train.slots / mesh_.data(), first = mesh_.data_rank() * slots;
  tree_->set_slots(slots);
  SlotSums sums{.tree = tree_.get(),
                .losses = std::vector<double>(static_cast<size_t>(config_.train.slots), 0.0)};
  if (stream_ != nullptr) {
    size_t next = 0;
    sums.after_last_backward = [this, next](int64_t layer) mutable {
      if (next < buckets_.size() && buckets_[next].layer == layer) leave(buckets_[next++]);
    };
  }
  compute_slots(plan, read, first, first + slots, sums);
  if (stream_ != nullptr) leave_rest();
  sum_counts(sums);
  gradients_ = tree_->root().rows(0, model_->table().total_count);
  StepResult result;
  result.targets = sums.targets;
  const double targets = static_cast<double>(std::max<int64_t>(1, result.targets));
  result.loss = tree_sum(sums.losses) / targets;
  fault_point("step.counts_summed");
  const double squares = norm_->sum_of_squares(ctx_, gradients_, ranks_->world);
  const Clip clip = clip_factor(squares, 1 / targets, config_.train.clip_norm);
  result.gradient_norm = clip.norm;
  result.gradient_scale = clip.factor;
  result.finite = std::isfinite(result.loss) && !clip.skip;
  return result;
}

void Trainer::apply(const StepPlan& plan, const StepResult& result, double lr_scale) {
  MR_CHECK(result.finite);
  const OptimizerStep step{.weights = master_,
                           .gradients = gradients_,
                           .load = load_,
                           .gradient_scale = result.gradient_scale,
                           .lr_scale = lr_scale,
                           .step = plan.step + 1};
  for (ShardedOptimizer* optimizer : {shared_.get(), experts_.get()}) {
    if (optimizer == nullptr) continue;
    fault_point("step.optimizer");
    optimizer->step(ctx_, step);
    fault_point("step.weights_gather");
    const OpTimer timer(ctx_.profile, "ranks: weights (gather)", 0, 0);
    optimizer->gather(master_);
  }
  refresh();
}

std::vector<ShardTensor> Trainer::shard() const {
  const ParameterTable& table = model_->table();
  std::vector<ShardTensor> tensors = weights_to_write(table, master_, ranks_->mesh);
  for (const ShardedOptimizer* optimizer : {shared_.get(), experts_.get()}) {
    if (optimizer == nullptr) continue;
    for (ShardTensor& t : optimizer_shard(table, optimizer->state(), ranks_->mesh, true))
      tensors.push_back(std::move(t));
  }
  return tensors;
}

std::vector<ShardTensor> Trainer::copy_shard() {
  fault_point("save.copy");
  std::vector<ShardTensor> tensors = shard();
  for (size_t i = 0; i < tensors.size(); ++i) {
    Tensor& live = tensors[i].local;
    std::memcpy(copies_[i].data, live.data, static_cast<size_t>(live.bytes()));
    live = copies_[i];
  }
  return tensors;
}

void Trainer::restore(const Checkpoint& checkpoint) {
  const ParameterTable& table = model_->table();
  const auto read = [&](const std::vector<ShardTensor>& tensors) {
    for (const ShardTensor& t : tensors) checkpoint.read_rows(t.name, t.row_begin, t.local);
  };
  read(weights_to_read(table, master_));
  for (const ShardedOptimizer* optimizer : {shared_.get(), experts_.get()}) {
    if (optimizer != nullptr) read(optimizer_shard(table, optimizer->state(), ranks_->mesh, false));
  }
  refresh();
}

}  // namespace moraine
