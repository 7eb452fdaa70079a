// ShapePlans: a grid of proportions, each with the depth that the budget allows, priced as steps.
#include "train/shape_plans.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/parameters.h"
#include "train/run_memory.h"
#include "train/run_mesh.h"
#include "train/step_layout.h"

namespace moraine {
namespace {

constexpr size_t kMost = 10;
constexpr double kNear = 0.05;  // of a budget of parameters
constexpr int64_t kStep = 64, kWidest = 8192;
constexpr int64_t kLeastAspect = 24, kMostAspect = 96;  // hidden / layers

std::vector<int64_t> widths() {
  std::vector<int64_t> all;
  for (int64_t D = kStep; D <= kWidest; D += D < 512 ? kStep : D < 2048 ? 2 * kStep : 8 * kStep)
    all.push_back(D);
  return all;
}

// The proportions of the header; what they do not name is the config's.
ModelConfig shape_of(const ModelConfig& base, int64_t D, int64_t experts, int64_t layers) {
  ModelConfig m = base;
  m.shape = "";
  m.hidden = m.expert_hidden = D;
  m.layers = layers;
  m.head_dim = D >= 1024 ? 128 : 64;
  m.heads = std::max<int64_t>(1, D / 2 / m.head_dim);
  m.kv_heads = std::max<int64_t>(1, m.heads / 4);
  while (m.heads % m.kv_heads != 0) --m.kv_heads;
  m.experts = experts;
  m.router_hidden = std::clamp<int64_t>(D / 8 / 32 * 32, 32, 256);
  std::erase_if(m.sliding_layers, [&](int64_t layer) { return layer >= layers; });
  if (m.sliding_layers.empty()) m.sliding_window = 0;
  return m;
}

// Of a budget of parameters the one or two that come nearest (layers are alike); of a budget of time some of them all.
std::vector<int64_t> depths(const ModelConfig& base, int64_t D, int64_t experts,
                            const ShapeSearch& search) {
  const int64_t least = std::max<int64_t>(1, D / kMostAspect),
                most = std::max<int64_t>(2, D / kLeastAspect);
  std::vector<int64_t> all;
  if (search.parameters == 0) {
    const int64_t step = std::max<int64_t>(1, (most - least) / 6);
    for (int64_t L = least; L <= most; L += step) all.push_back(L);
    return all;
  }
  const int64_t one = count_parameters(shape_of(base, D, experts, 1)).total,
                two = count_parameters(shape_of(base, D, experts, 2)).total;
  const int64_t nearest = (search.parameters - one) / (two - one) + 1;
  for (int64_t L = std::max(least, nearest); L <= std::min(most, nearest + 1); ++L)
    all.push_back(L);
  return all;
}

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) all.push_back(d);
  }
  return all;
}

bool is_near(const ParameterCount& count, const ShapeSearch& search) {
  return search.parameters == 0 ||
         std::abs(static_cast<double>(count.total) / static_cast<double>(search.parameters) - 1) <=
             kNear;
}

class Pricer {
 public:
  Pricer(const RunConfig& config, const Machine& machine, int ranks)
      : config_(config),
        machine_(machine),
        ranks_(ranks),
        place_(place_on_machine(machine, ranks)) {}

  // With the micro-batch that is fastest. Throws what the trainer would.
  ShapePlan price(const ModelConfig& model) const {
    ShapePlan best;
    RunConfig c = config_;
    c.model = model;
    const Timeline timeline(c);
    const StepPlan last = timeline.at(timeline.steps() - 1);
    for (const int64_t micro : divisors(slot_sequences(c, last))) {
      c.train.micro_sequences = micro;
      const Mesh mesh = run_mesh(c, ranks_, 0, last.phase);
      step_extents(c, timeline, mesh);
      const StepWork work = step_work(c, last, mesh, trainer_options(c, timeline, machine_));
      const StepTime time = step_time(work, mesh, place_, machine_);
      if (best.micro_sequences > 0 && time.seconds >= best.time.seconds) continue;
      double flops = 0;
      for (const StepOperation& o : step_operations(work.rank)) flops += o.flops;
      const double peak = matmul_gflops(machine_, compute_dtype(c) == DType::kBF16) * 1e9;
      best = {.model = model, .micro_sequences = micro, .time = time};
      best.peak_share = flops * ranks_ / (time.seconds * peak);
      best.run_seconds = time.seconds * static_cast<double>(timeline.steps());
    }
    best.parameters = count_parameters(model);
    return best;
  }

 private:
  const RunConfig& config_;
  const Machine& machine_;
  const int ranks_;
  const Place place_;
};

void check_search(const ShapeSearch& search) {
  if ((search.parameters > 0) == (search.seconds > 0))
    throw_error(Code::kInvalidArgument,
                "plan shape: wanted one budget: --parameters N, or --hours H with the run's length "
                "in the config");
}

bool is_better(const ShapePlan& a, const ShapePlan& b, const ShapeSearch& search) {
  if (search.parameters > 0) return a.peak_share > b.peak_share;
  return a.parameters.active > b.parameters.active;
}

}  // namespace

RunConfig with_shape(const RunConfig& config, const ShapePlan& plan) {
  RunConfig c = config;
  c.model = plan.model;
  c.train.micro_sequences = plan.micro_sequences;
  return c;
}

std::vector<ShapePlan> plan_shapes(const RunConfig& config, const Machine& machine, int ranks,
                                   const ShapeSearch& search) {
  check_search(search);
  const Pricer pricer(config, machine, ranks);
  std::vector<ShapePlan> plans;
  ShapePlan smallest;
  const auto consider = [&](const ModelConfig& model) {
    if (!is_near(count_parameters(model), search)) return;
    try {
      const ShapePlan plan = pricer.price(model);
      if (smallest.run_seconds == 0 || plan.run_seconds < smallest.run_seconds) smallest = plan;
      if (search.seconds == 0 || plan.run_seconds <= search.seconds) plans.push_back(plan);
    } catch (const Error&) {  // this mesh can not divide so many experts
    }
  };
  size_t fruitless = 0;  // widths in a row of which nothing was in time
  for (const int64_t D : widths()) {
    const size_t before = plans.size();
    if (search.seconds > 0 && fruitless == 3) break;  // wider ones only take longer
    for (const int64_t experts : {4, 8, 16, 32}) {
      for (const int64_t L : depths(config.model, D, experts, search))
        consider(shape_of(config.model, D, experts, L));
    }
    fruitless = plans.size() > before ? 0 : fruitless + 1;
  }
  std::stable_sort(plans.begin(), plans.end(),
                   [&](const ShapePlan& a, const ShapePlan& b) { return is_better(a, b, search); });
  std::vector<ShapePlan> best;
  for (ShapePlan& plan : plans) {
    if (best.size() == kMost) break;
    Arena arena(Arena::Mode::kDry);
    plan_run_memory(arena, with_shape(config, plan), {ranks}, machine);
    plan.bytes = arena.bytes();
    if (search.memory_bytes == 0 || plan.bytes * ranks <= search.memory_bytes) best.push_back(plan);
  }
  if (!best.empty()) return best;
  if (smallest.run_seconds > 0)
    throw_error(
        Code::kInvalidArgument,
        "plan shape: nothing fits: the fastest shape of the budget, hidden = {}, layers = {}, "
        "experts = {}, takes {:.3g} hours",
        smallest.model.hidden, smallest.model.layers, smallest.model.experts,
        smallest.run_seconds / 3600);
  throw_error(Code::kInvalidArgument,
              "plan shape: no shape has {} parameters within 5 % with a vocabulary of {}: the "
              "embedding alone has {} at hidden = {}",
              search.parameters, config.model.vocab_size, config.model.vocab_size * kStep, kStep);
}

}  // namespace moraine
