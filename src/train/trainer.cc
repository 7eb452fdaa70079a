// Memory is taken here, by name, before step one.
#include "train/trainer.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/fault_point.h"
#include "kernels/attention.h"
#include "kernels/host_copy.h"
#include "model/model_directory.h"
#include "train/saved_rows.h"
#include "train/step_layout.h"

namespace moraine {
namespace {

// For the largest batch of every phase that shares sequences; null if none does.
std::unique_ptr<ContextParallel> make_context_parallel(Arena& arena, const RunConfig& c,
                                                       const Timeline& timeline,
                                                       ContextVariant variant) {
  std::optional<ContextSizes> most;
  for (const StepPlan& plan : timeline.kinds()) {
    const ContextLayout layout = micro_layout(c, plan);
    if (layout.ranks == 1) continue;
    const ContextSizes sizes = context_sizes(
        c.model,
        {.variant = variant, .most = layout, .compute = compute_dtype(c), .training = true});
    most = most ? larger_of(*most, sizes) : sizes;
  }
  return most ? std::make_unique<ContextParallel>(arena, *most) : nullptr;
}

// Documents are as long as a sequence at most. Ranks that share one compute attention in parts.
int64_t worker_bytes(const RunConfig& c, const StepExtents& most, const Mesh& mesh,
                     int64_t threads) {
  if (mesh.context > 1) return kWorkerScratchBytes;
  return cpu::attention_worker_bytes({.rows = most.positions,
                                      .documents = most.rows / std::max<int64_t>(1, most.positions),
                                      .kv_heads = c.model.kv_heads,
                                      .head_dim = c.model.head_dim,
                                      .dtype = compute_dtype(c),
                                      .threads = threads});
}

// Who plans alone has neither, and who measures has the CPU.
void check_device(const RunConfig& c, const TrainerOptions& options, const Arena& arena) {
  const bool wanted = c.train.device != "cpu";
  MR_CHECK(arena.on_device() == (options.gpu != nullptr));
  if (arena.dry() || wanted == arena.on_device()) return;
  throw_error(Code::kInvalidArgument,
              "train.device = {}: `moraine train` alone computes there; wanted cpu",
              c.train.device);
}

}  // namespace

Trainer::Trainer(Arena& arena, Pool& pool, const RunConfig& config, const Timeline& timeline,
                 Ranks& ranks, const TrainerOptions& trainer_options)
    : config_(config), ranks_(&ranks) {
  const Mesh& mesh = ranks.mesh;
  const StepExtents most = step_extents(config, timeline, mesh);
  check_device(config, trainer_options, arena);
  gpu::Gpu* const gpu = trainer_options.gpu;
  ctx_ = gpu != nullptr ? make_context(*gpu, pool)
                        : make_context(Backend::kCpu, pool, arena,
                                       worker_bytes(config, most, mesh, pool.threads()));
  if (mesh.expert > 1) make_experts(arena, trainer_options);
  context_ = make_context_parallel(arena, config, timeline, trainer_options.variant);
  master_ = arena.take("weights.master", "weights", DType::kF32,
                       {held_parameters(config.model, exchange_.get()).total_count});
  model_ = std::make_unique<Model>(
      arena, config.model,
      ModelOptions{.compute = compute_dtype(config),
                   .tokens = most.rows,
                   .positions = most.positions,
                   .training = true,
                   .recompute = phase_recompute(config, trainer_options.phase),
                   .exchange = exchange_.get(),
                   .guests = guests_.get(),
                   .context = context_.get()},
      master_);
  if (!config.model.dense())
    load_ = arena.take_host("router.load", "scratch", DType::kI64,
                            {config.model.layers, config.model.classes()});
  for (Tensor* t : {&rows_.token, &rows_.position, &rows_.target})
    *t = arena.take_host("batch.rows", "scratch", DType::kI32, {most.rows});
  optimizers_ =
      std::make_unique<OptimizerGroups>(arena, config, model_->table(), ranks, pool.threads());
  way_.links = trainer_options.links;
  if (gpu != nullptr && mesh.ranks > 1 && way_.links == nullptr) {
    staging_ = std::make_unique<Staging>(arena, model_->table().total_count);
    way_.staging = staging_.get();
  }
  reducer_ = std::make_unique<GradientReducer>(
      arena, model_->table(),
      GradientReducerOptions{.slots = most.slots,
                             .layers = config.model.layers,
                             .senders = mesh.expert,
                             .bucket_bytes = trainer_options.bucket_bytes,
                             .alone = mesh.ranks == 1,
                             .ranks = mesh.ranks,
                             .guests = guests_.get(),
                             .way = way_},
      *optimizers_);
  norm_ = std::make_unique<GradientNorm>(model_->table());
  for (const DistributedOptimizer* optimizer : optimizers_->all())
    norm_->own(optimizer->specs(), optimizer->owned());
  if (config.train.verify_every_steps > 0 && !arena.dry())
    seal_ = std::make_unique<StateSeal>(model_->table(), master_, *optimizers_, ctx_.backend);
  for (const TensorRows& t : saved_rows()) {
    Tensor copy = t.local;
    copy.data = arena
                    .take_host("checkpoint." + t.name.substr(0, t.name.find('.')), "copy",
                               DType::kU8, {copy.bytes()})
                    .data;
    copies_.push_back(copy);
  }
}

// The experts of other ranks, with places for some of them here if the config says so.
void Trainer::make_experts(Arena& arena, const TrainerOptions& options) {
  const ModelConfig& m = config_.model;
  const ParallelConfig& p = config_.parallel;
  Communicator& group = ranks_->experts;
  const int64_t elsewhere = m.experts - m.experts / group.size();
  ExchangePlaces places{.layers = m.layers};
  if (p.placement != PlacementMode::kStatic) places.slots = std::min(p.expert_slots, elsewhere);
  for (int i = 0; i < group.size() && !p.placement_across_hosts; ++i)
    places.hosts.push_back(group.transport().host_of(group.global_rank(i)));
  exchange_ = std::make_unique<ExpertExchange>(group, m.experts, places);
  if (places.slots == 0) return;
  const std::vector<int64_t> matrices = {2 * m.expert_hidden * m.hidden,
                                         m.hidden * m.expert_hidden};
  guests_ = std::make_unique<GuestExperts>(
      arena, ranks_->guests, *exchange_,
      GuestOptions{.layers = m.layers, .matrices = matrices, .training = true, .gpu = options.gpu});
  const int64_t elements = matrices[0] + matrices[1],
                slots = config_.train.slots / ranks_->mesh.data();
  placer_ = std::make_unique<ExpertPlacer>(
      *exchange_, group,
      PlacerOptions{.mode = p.placement,
                    .layers = m.layers,
                    .every_steps = p.placement_every_steps,
                    .gate = p.placement_gate,
                    .bytes_per_second = options.bytes_per_second,
                    .weight_bytes = 2 * elements * dtype_bytes(compute_dtype(config_)),
                    .gradient_bytes = 4 * elements * slots});
}

void Trainer::initialize(uint64_t seed) {
  set_weights([&](const Tensor& flat) {
    initialize_elements(*ctx_.pool, {model_->table(), config_.model, seed}, 0, flat);
  });
}

void Trainer::set_weights(const std::function<void(const Tensor& flat)>& fill) {
  Arena host(Arena::Mode::kReal);
  Tensor flat = master_;
  if (ctx_.backend == Backend::kGpu)
    flat = host.take("weights.read", "weights", DType::kF32, {master_.count()});
  fill(flat);
  copy_in(ctx_, master_, flat);
}

void Trainer::refresh() {
  model_->refresh(ctx_);
  close_state();
}

void Trainer::enter_phase(int64_t phase) {
  if (phase == phase_) return;
  phase_ = phase;
  ranks_->share_sequences(phase_context(config_, phase));
  const double theta = config_.phases[static_cast<size_t>(phase)].rope_theta;
  model_->set_rope_theta(ctx_, theta > 0 ? theta : config_.model.rope_theta,
                         config_.model.sliding_rope_theta);
}

std::vector<TensorRows> Trainer::saved_rows() const {
  const ParameterTable& table = model_->table();
  std::vector<TensorRows> tensors = weights_to_write(table, master_, ranks_->mesh);
  for (const DistributedOptimizer* optimizer : optimizers_->all()) {
    for (TensorRows& t : optimizer_rows(table, optimizer->state(), ranks_->mesh, true))
      tensors.push_back(std::move(t));
  }
  return tensors;
}

std::vector<TensorRows> Trainer::readable_rows() {
  return ctx_.backend == Backend::kGpu ? copy_saved_rows() : saved_rows();
}

std::vector<TensorRows> Trainer::copy_saved_rows() {
  fault_point("save.copy");
  std::vector<TensorRows> tensors = saved_rows();
  for (size_t i = 0; i < tensors.size(); ++i) {
    Tensor& live = tensors[i].local;
    copy_out(ctx_, copies_[i], live);
    live = copies_[i];
  }
  check_state();  // what was copied was right
  return tensors;
}

void Trainer::restore(const Checkpoint& checkpoint) {
  const ParameterTable& table = model_->table();
  const auto read = [&](const std::vector<TensorRows>& tensors) {
    for (const TensorRows& t : tensors) {
      Arena memory(Arena::Mode::kReal);
      Tensor host = t.local;
      if (ctx_.backend == Backend::kGpu)
        host.data = memory.take_bytes("checkpoint.read", "copy", host.bytes());
      checkpoint.read_rows(t.name, t.row_begin, host);
      copy_in(ctx_, t.local, host);
    }
  };
  read(weights_to_read(table, master_));
  fault_point("resume.weights");
  for (const DistributedOptimizer* optimizer : optimizers_->all()) {
    read(optimizer_rows(table, optimizer->state(), ranks_->mesh, false));
  }
  refresh();
}

}  // namespace moraine
