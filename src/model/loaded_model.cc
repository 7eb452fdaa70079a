// Opens a model directory and takes everything it needs from one arena.
#include "model/loaded_model.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/resident.h"
#include "base/saturate.h"
#include "comm/all_ranks.h"
#include "comm/collectives.h"
#include "kernels/check_tensor.h"
#include "kernels/gpu/open_device.h"
#include "kernels/gpu/operations.h"
#include "kernels/host_copy.h"
#include "model/model_directory.h"
#include "model/model_memory.h"
#include "model/operations.h"
#include "model/weights.h"

namespace moraine {
namespace {

DType compute_dtype(const ModelDirectory& directory, const std::string& wanted) {
  if (wanted.empty()) return directory.compute_dtype();
  const DType compute = wanted == "bf16" ? DType::kBF16 : DType::kF32;
  if (!directory.packed() || compute == directory.compute_dtype()) return compute;
  throw_error(Code::kInvalidArgument,
              "dtype {}: {} is packed for {}; leave it out, or use the directory that it was made "
              "from",
              wanted, directory.path(), dtype_name(directory.compute_dtype()));
}

// Of those that compute together; null: one alone.
Communicator* some_of(const ModelRanks& ranks) {
  for (Communicator* some : {ranks.rows, ranks.experts, ranks.cache}) {
    if (some != nullptr) return some;
  }
  return nullptr;
}

bool first_rank(const ModelRanks& ranks) {
  const Communicator* const some = some_of(ranks);
  return some == nullptr || some->rank() == 0;
}

int device_turn(const ModelRanks& ranks) {
  Communicator* const some = some_of(ranks);
  return some == nullptr ? 0 : rank_of_host(some->transport());
}

// Answers of few rows that go from rank to rank lie in the host's memory.
std::string low_latency_of(const LoadOptions& o) {
  if (o.device == "cpu") return o.low_latency;
  if (o.low_latency == "on")
    throw_error(Code::kInvalidArgument,
                "device {}: low latency of answers is the CPU's alone (docs/gpu.md); wanted auto "
                "or off",
                o.device);
  return "off";
}

// Whether the head is to have a copy in 8 bits.
bool wants_coarse_head(const LoadOptions& o, const ModelConfig& config, DType compute) {
  if (o.head != "full" && o.head != "two-stage" && o.head != "auto")
    throw_error(Code::kInvalidArgument, "head {}: wanted auto, full or two-stage", o.head);
  if (o.head == "full" || !first_rank(o.ranks)) return false;
  if (o.device != "cpu" && o.head == "auto") return false;
  const auto bytes = [&](WeightFormat format) {
    return packed_bytes({.dtype = compute,
                         .groups = 1,
                         .n = config.vocab_size,
                         .k = config.hidden,
                         .format = format});
  };
  return o.head == "two-stage" || (bytes(WeightFormat::kPlain) >= kLargeHeadBytes &&
                                   bytes(WeightFormat::kQ8) <= available_memory_bytes() / 4);
}

// Of one of the ranks that share it.
CacheOptions cache_of(const LoadOptions& options) {
  CacheOptions cache = options.cache;
  if (options.ranks.cache != nullptr) {
    cache.members = options.ranks.cache->size();
    cache.member = options.ranks.cache->rank();
    cache.page_rows *= cache.members;
  }
  return cache;
}

// Of who holds `count` experts, the first or any others.
int64_t read_weight_bytes(const ModelConfig& config, DType compute, int64_t count) {
  Arena plan(Arena::Mode::kDry);
  const ParameterTable table = build_parameters(config, {.begin = 0, .end = count});
  const Tensor master = plan.take("weights.master", "weights", DType::kF32, {table.total_count});
  make_weights(plan, config, table, master, {.compute = compute});
  return plan.bytes();
}

}  // namespace

int64_t available_device_bytes(const std::string& device) {
  constexpr int64_t kUnknown = int64_t{1} << 50;  // what it lacks is said when it is taken
  return gpu::has_own_memory(device) ? kUnknown : std::min(available_memory_bytes(), kUnknown);
}

std::unique_ptr<LoadedModel> LoadedModel::open(const ModelDirectory& directory,
                                               const LoadOptions& options) {
  LoadOptions fitting = options;
  fitting.head = check_memory(directory, options);
  std::unique_ptr<LoadedModel> m = make(directory, fitting, Arena::Mode::kReal);
  if (m->packed_ != nullptr && m->gpu_ != nullptr) {
    m->packed_->verify();  // all of it is read now, in any case
  } else if (m->packed_ != nullptr) {
    m->packed_->read_ahead(pack_sources(m->config(), m->model_->table()));
  }
  m->model_->refresh(m->ctx_);
  return m;
}

std::unique_ptr<LoadedModel> LoadedModel::plan(const ModelDirectory& directory,
                                               const LoadOptions& options) {
  return make(directory, options, Arena::Mode::kDry);
}

// What this rank takes, and as much for each of the others of this host; only their experts may be more or fewer, and
// the first alone has a copy of the head.
ModelMemory LoadedModel::memory_of_host() const {
  ModelMemory all = planned_memory(arena_);
  all.compute = model_->options().compute;
  all.parameters = packed_ == nullptr ? model_->table().total_count : 0;
  all.cached_positions = cache_.pages * cache_.page_rows;
  all.positions = model_->options().positions;
  all.rows = model_->options().tokens;
  if (ranks_ == nullptr) return all;
  const ModelMemory own = all;
  const Transport& transport = ranks_->transport();
  for (int member = 0; member < ranks_->size(); ++member) {
    const bool here =
        transport.host_of(ranks_->global_rank(member)) == transport.host_of(transport.rank());
    if (!here || member == ranks_->rank()) continue;
    ++all.ranks;
    ModelMemory other = own;
    if (gather_ != nullptr && packed_ == nullptr) {
      const int64_t count = gather_->shape().begin(member + 1) - gather_->shape().begin(member);
      other.parameters = build_parameters(config(), {.begin = 0, .end = count}).total_count;
      other.weight_bytes = read_weight_bytes(config(), own.compute, count);
    }
    all.parameters += other.parameters;
    all.weight_bytes = add_saturated(all.weight_bytes, other.weight_bytes);
    all.guest_bytes = add_saturated(all.guest_bytes, own.guest_bytes);
    all.cache_bytes = add_saturated(all.cache_bytes, own.cache_bytes);
    all.table_bytes = add_saturated(all.table_bytes, own.table_bytes);
    all.row_bytes = add_saturated(all.row_bytes, own.row_bytes);
  }
  return all;
}

std::string LoadedModel::check_memory(const ModelDirectory& directory, const LoadOptions& options) {
  // No vocabulary: nothing can be planned, and reading the weights says what is wrong.
  if (options.device != "cpu" || directory.config().vocab_size < 1) return options.head;
  const std::unique_ptr<LoadedModel> planned = plan(directory, options);
  const int64_t free = options.host_free > 0 ? options.host_free : available_memory_bytes();
  ModelMemory memory = planned->memory_of_host();
  const auto lacks = [&] { return model_shortage(memory, free, options.unread); };
  if (options.head == "auto" && !lacks().empty()) memory.head_bytes = 0;
  if (!lacks().empty())
    throw_error(Code::kInvalidArgument, "open model {}: {}", directory.path(), lacks());
  return memory.head_bytes > 0 ? "two-stage" : "full";
}

std::string LoadedModel::device() const { return gpu_ == nullptr ? "cpu" : gpu_->name(); }

int64_t LoadedModel::device_bytes() const { return arena_.device_bytes(); }

// Most of a step.
GatheredRows LoadedModel::gathered_rows() const {
  return {.rows = model_->options().tokens * config().experts_per_token,
          .width = config().hidden,
          .dtype = model_->options().compute};
}

void LoadedModel::connect() {
  check_generations();
  if (gather_ == nullptr) return;
  const SlotChoice choice = choose_slots(*gather_, gathered_rows(), low_latency_);
  if (gather_->comm().rank() == 0)
    log_event(Level::kInfo, "experts.low_latency", "rows={} slots_us={:.2f} all_gather_us={:.2f}",
              choice.rows, choice.slots_us, choice.all_gather_us);
}

LoadedModel::LoadedModel(const LoadOptions& o, Arena::Mode mode)
    : pool_(o.threads > 0 ? static_cast<int>(o.threads) : usable_cores()),
      gpu_(gpu::open_device(o.device, device_turn(o.ranks))),
      gpu_memory_(gpu_ == nullptr ? nullptr : std::make_unique<gpu::GpuArenaMemory>(*gpu_)),
      arena_(mode, gpu_memory_.get()),
      ranks_(some_of(o.ranks)) {}

// Through the host's memory, if they are for a GPU's.
Tensor LoadedModel::read_master(const ModelDirectory& directory, const ParameterTable& table) {
  const Tensor master = arena_.take("weights.master", "weights", DType::kF32, {table.total_count});
  if (arena_.dry()) return master;
  if (!arena_.on_device()) {
    directory.read_weights(table, master);
    return master;
  }
  Arena host(Arena::Mode::kReal);
  const Tensor read = host.take("weights.read", "weights", DType::kF32, {table.total_count});
  directory.read_weights(table, read);
  copy_in(ctx_, master, read);
  return master;
}

// Parts of an answer have the bits of who computes them.
void LoadedModel::check_generations() const {
  if (ranks_ == nullptr || gpu_ == nullptr) return;
  const std::vector<std::string> all = all_gather_text(*ranks_, gpu_->generation());
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    barrier(*ranks_);  // everybody has seen it, and ends with this error
    throw_error(Code::kInvalidArgument,
                "rank 0 computes on {}, rank {} on {}; wanted one generation for all", all[0], r,
                all[r]);
  }
}

void LoadedModel::divide_experts(const LoadOptions& options, const ModelConfig& config) {
  const ModelRanks& ranks = options.ranks;
  if (ranks.rows != nullptr && config.experts > 0) {
    if (config.experts % ranks.rows->size() != 0)
      throw_error(Code::kInvalidArgument,
                  "{} experts can not be divided among {} ranks; wanted a number of ranks that "
                  "divides them",
                  config.experts, ranks.rows->size());
    exchange_ = std::make_unique<ExpertExchange>(*ranks.rows, config.experts);
  }
  if (ranks.experts == nullptr) return;
  GatherPlaces places{.layers = config.layers};
  if (ranks.guests != nullptr)
    places = gather_places(*ranks.experts, options.placement, config.layers, config.experts);
  gather_ = std::make_unique<ExpertGather>(*ranks.experts, config.experts, places);
  if (places.slots > 0)
    guests_ = std::make_unique<ServingGuests>(*ranks.guests, gather_->shape(), gpu_.get());
  placer_ = std::make_unique<ServingPlacer>(*gather_, guests_.get(), options.placement);
  low_latency_ = low_latency_of(options);
}

std::unique_ptr<LoadedModel> LoadedModel::make(const ModelDirectory& directory,
                                               const LoadOptions& options, Arena::Mode mode) {
  const ModelConfig& config = directory.config();
  if (!options.dtype.empty() && options.dtype != "f32" && options.dtype != "bf16") {
    throw_error(Code::kInvalidArgument, "dtype {}: wanted f32 or bf16", options.dtype);
  }
  const int64_t positions = options.positions > 0 ? options.positions : config.max_positions;
  if (positions > config.max_positions) {
    throw_error(Code::kInvalidArgument, "{} positions: the model was made for {} (max_positions)",
                positions, config.max_positions);
  }
  std::unique_ptr<LoadedModel> m(new LoadedModel(options, mode));
  const ModelRanks& ranks = options.ranks;
  m->divide_experts(options, config);
  m->ctx_ = m->gpu_ != nullptr ? make_context(*m->gpu_, m->pool_)
                               : make_context(Backend::kCpu, m->pool_, m->arena_);
  const DType compute = compute_dtype(directory, options.dtype);
  if (directory.packed()) m->packed_ = directory.open_packed();
  const ModelOptions model = {.compute = compute,
                              .tokens = options.tokens,
                              .positions = positions,
                              .exchange = m->exchange_.get(),
                              .gather = m->gather_.get(),
                              .serving_guests = m->guests_.get(),
                              .serving_placer = m->placer_.get(),
                              .cache_ranks = ranks.cache,
                              .packed = m->packed_.get(),
                              .coarse_head = wants_coarse_head(options, config, compute)};
  if (m->gpu_ != nullptr) gpu::require_operations(operations_of(config, model), "a model");
  const CacheOptions cache = cache_of(options);
  const ParameterTable held = held_parameters(config, m->exchange_.get(), m->gather_.get());
  Tensor master;
  if (m->packed_ == nullptr) master = m->read_master(directory, held);
  m->model_ = std::make_unique<Model>(m->arena_, config, model, master);
  if (cache.pages > 0) m->cache_ = make_cache(m->arena_, config, compute, cache);
  if (m->gather_ != nullptr)
    m->arena_.note_taken("experts.low_latency", "comm",
                         slot_memory(*m->gather_, m->gathered_rows(), m->low_latency_));
  m->arena_.seal();
  return m;
}

}  // namespace moraine
