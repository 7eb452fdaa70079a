// AutoPlan: rank 0 asks the planner, all take its answer.
#include "train/auto_plan.h"

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/resident.h"
#include "comm/agree.h"
#include "train/run_kept.h"

namespace moraine {
namespace {

// Between hosts nothing was measured: a message and a rate of 10 Gb/s Ethernet.
constexpr Link kNominalFar = {.latency_seconds = 50e-6, .bytes_per_second = 1e9};

struct Settled {
  MeshChoice choice;
  bool is_feasible = false;
};

// auto's type is settled later; bf16's plan is as good for f32.
RunConfig with_type(const RunConfig& config) {
  RunConfig c = config;
  if (c.train.dtype == Precision::kAuto) c.train.dtype = Precision::kBF16;
  return c;
}

std::vector<MeshPlan> candidates(const RunConfig& config, const Place& place,
                                 const Machine& machine, int ranks, int64_t memory_bytes) {
  const bool may_recompute = config.train.recompute == Recompute::kNone;
  return plan_meshes(with_type(config), place, machine, ranks,
                     {.context = false, .recompute = may_recompute, .memory_bytes = memory_bytes});
}

// plan_meshes puts what does not fit last, in the order of time.
size_t best_of(const std::vector<MeshPlan>& plans) {
  if (plans.front().fits) return 0;
  const auto least =
      std::min_element(plans.begin(), plans.end(),
                       [](const MeshPlan& a, const MeshPlan& b) { return a.bytes < b.bytes; });
  return static_cast<size_t>(least - plans.begin());
}

void take(RunConfig& config, const MeshChoice& choice) {
  config.parallel.expert = choice.expert;
  config.train.recompute = choice.recompute;
}

std::string plan_text(const MeshPlan& p) {
  return fmt::format("data={} context={} expert={} recompute={}", p.mesh.data(), p.mesh.context,
                     p.mesh.expert, p.recompute == Recompute::kLayer ? "layer" : "none");
}

std::string reason(const std::vector<MeshPlan>& plans, size_t best) {
  const MeshPlan& p = plans[best];
  if (!p.fits) return "none of them fits in memory; this one takes least";
  if (plans.size() == 1) return "there is no other";
  const MeshPlan& next = plans[1];
  if (!next.fits) return fmt::format("the next, {}, does not fit in memory", plan_text(next));
  return fmt::format("the next, {}, takes {:.1f} ms", plan_text(next), 1e3 * next.time.seconds);
}

Place place_of(const RunConfig& config, const Machine& machine, const Transport& transport) {
  int64_t here = 0;
  for (int r = 0; r < transport.size(); ++r) here += transport.host_of(r) == transport.host_of(0);
  Place place = place_on_machine(machine, here, config.train.threads);
  place.far = kNominalFar;
  return place;
}

Settled decide(FileSystem& fs, const RunConfig& config, const RunOptions& options,
               const Transport& transport) {
  const bool measured = !options.machine_file.empty();
  const Machine machine =
      measured ? load_machine(fs, options.machine_file) : nominal_machine(usable_cores());
  // What survivors keep is taken again.
  const int64_t kept = options.kept != nullptr ? options.kept->memory.bytes() : 0,
                available = available_memory_bytes();
  const int64_t memory = available > INT64_MAX - kept ? available : available + kept;
  const Place place = place_of(config, machine, transport);
  const std::vector<MeshPlan> plans = candidates(config, place, machine, transport.size(), memory);
  const size_t best = best_of(plans);
  log_event(Level::kInfo, "run.plan",
            "ranks={} {} step_ms={:.1f} memory_mib={:.1f} plans={} rates={} reason=\"{}\"",
            transport.size(), plan_text(plans[best]), 1e3 * plans[best].time.seconds,
            static_cast<double>(plans[best].bytes) / (1 << 20), plans.size(),
            measured ? "measured" : "nominal", reason(plans, best));
  if (options.kept != nullptr) options.kept->plans = {transport.size(), {}, place, machine, {}};
  return {choice_of(plans[best]), true};
}

}  // namespace

MeshPlan choose_plan(const RunConfig& config, const Place& place, const Machine& machine, int ranks,
                     int64_t memory_bytes) {
  std::vector<MeshPlan> plans = candidates(config, place, machine, ranks, memory_bytes);
  return plans[best_of(plans)];
}

void settle_plan(FileSystem& fs, RunConfig& config, const RunOptions& options,
                 Transport& transport) {
  if (config.parallel.plan == PlanChoice::kGiven) return;
  PlanHistory* const history = options.kept != nullptr ? &options.kept->plans : nullptr;
  std::vector<int> all;
  for (int r = 0; r < transport.size(); ++r) all.push_back(r);
  // Before there is a mesh, and with it the communicators of a run.
  Communicator world(transport, all, kMaxChannels - 1, "plan", config.parallel.deadline_seconds);
  Settled settled;
  std::exception_ptr failed;
  if (transport.rank() == 0) {
    try {
      const bool is_known =
          history != nullptr && history->ranks == transport.size() && history->choice;
      settled = is_known ? Settled{*history->choice, true} : decide(fs, config, options, transport);
    } catch (const Error&) {
      failed = std::current_exception();  // the others are told before this rank ends
    }
  }
  settled = value_of_first(world, settled);
  if (failed) std::rethrow_exception(failed);
  if (!settled.is_feasible)
    throw_error(Code::kInvalidArgument,
                "parallel.plan = \"auto\": rank 0 found no plan for {} ranks, and says why",
                transport.size());
  take(config, settled.choice);
  if (history != nullptr) history->ranks = transport.size(), history->choice = settled.choice;
}

}  // namespace moraine
