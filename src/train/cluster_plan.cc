// ClusterPlan: the mesh planner at size, then what failures leave of its tokens.
#include "train/cluster_plan.h"

#include <algorithm>

#include "base/error.h"
#include "train/run_memory.h"
#include "train/run_mesh.h"

namespace moraine {
namespace {

constexpr double kDay = 24 * 3600;

// Those that this mesh can have of those there are, or any: what the config divides by is planned anew.
int64_t usable_ranks(const RunConfig& config, int64_t ranks) {
  RunConfig undivided = config;
  undivided.parallel.expert = undivided.parallel.context = 1;
  for (PhaseConfig& phase : undivided.phases) phase.expert = phase.context = 0;
  const int present = static_cast<int>(ranks);
  return std::max({1, most_ranks(config, present), most_ranks(undivided, present)});
}

// What a checkpoint of all ranks has, and the most that one rank copies for it.
struct StateBytes {
  double all = 0, of_rank = 0;
};
StateBytes state_bytes(const RunConfig& c, const MeshPlan& plan, const Machine& machine) {
  Arena arena(Arena::Mode::kDry);
  plan_run_memory(arena, with_plan(c, plan), {plan.mesh.ranks}, machine);
  StateBytes bytes;
  for (const Arena::Entry& e : arena.entries()) {
    if (e.name.starts_with("checkpoint.")) bytes.of_rank += static_cast<double>(e.bytes);
  }
  bytes.all = bytes.of_rank * plan.mesh.ranks;
  return bytes;
}

// The part of a step that waits for other hosts.
double far_share(const MeshPlan& plan) {
  const StepTime& t = plan.time;
  const double bytes = t.bytes_far + t.bytes_near;
  return bytes > 0 ? t.exposed / t.seconds * t.bytes_far / bytes : 0;
}

// The run on the most of some ranks that it can use.
struct SizedRun {
  RunConfig config;
  int64_t ranks = 0, batch_tokens = 0;
  std::vector<MeshPlan> meshes = {};
};

SizedRun plan_size(const RunConfig& config, const Cluster& cluster, int64_t ranks,
                   const ClusterSearch& search) {
  SizedRun run{.config = grow_batch(config, ranks)};
  run.ranks = usable_ranks(run.config, ranks);
  const Timeline timeline(run.config);
  run.batch_tokens = timeline.at(timeline.steps() - 1).batch_tokens;
  run.meshes =
      plan_meshes(run.config, place_in_cluster(cluster, run.ranks), cluster.machine,
                  static_cast<int>(run.ranks),
                  {.memory_bytes = static_cast<int64_t>(cluster.memory_gib * (int64_t{1} << 30)),
                   .imbalance = [most = search.imbalance](int64_t) { return most; },
                   .document = search.document,
                   .until_fits = true});
  return run;
}

bool is_faster(const SizedRun& a, const SizedRun& b) {
  const auto rate = [](const SizedRun& r) {
    return static_cast<double>(r.batch_tokens) / r.meshes.front().time.seconds;
  };
  const bool a_fits = a.meshes.front().fits, b_fits = b.meshes.front().fits;
  return a_fits != b_fits ? a_fits : rate(a) > rate(b);
}

// Fewer ranks, which larger powers of two divide: experts may be divided over so many.
std::vector<int64_t> rounder_counts(int64_t ranks) {
  std::vector<int64_t> counts;
  int64_t last = ranks;
  for (int64_t unit = 2; unit <= ranks; unit *= 2) {
    const int64_t count = ranks / unit * unit;
    if (count != last) counts.push_back(last = count);
  }
  return counts;
}

}  // namespace

RunConfig grow_batch(const RunConfig& config, int64_t ranks) {
  RunConfig c = config;
  const int64_t had = c.train.slots;
  if (had >= ranks) return c;
  const auto grow = [&](int64_t& batch) { batch = batch / had * ranks; };
  c.train.slots = ranks;
  grow(c.train.batch_tokens);
  for (int64_t& batch : c.train.ramp_batch_tokens) grow(batch);
  for (PhaseConfig& phase : c.phases) grow(phase.batch_tokens);
  return c;
}

ClusterPlan plan_cluster(const RunConfig& config, const Cluster& cluster, int64_t ranks,
                         const ClusterSearch& search) {
  SizedRun run = plan_size(config, cluster, ranks, search);
  for (const int64_t fewer : rounder_counts(ranks)) {
    SizedRun other = plan_size(config, cluster, fewer, search);
    if (is_faster(other, run)) run = std::move(other);
  }
  const RunConfig& c = run.config;
  ClusterPlan plan{.ranks_asked = ranks, .ranks = run.ranks};
  plan.batch_tokens = run.batch_tokens;
  plan.meshes = std::move(run.meshes);
  plan.best = plan.meshes.front();
  const Calibration& calibration = cluster.machine.calibration;
  plan.is_extrapolated = plan.ranks > cluster.ranks_per_host || cluster.speed != 1 ||
                         cluster.memory_speed != 1 || plan.ranks > calibration.ranks_most;
  plan.error = calibration.plans > 0 ? calibration.error_median : -1;
  const StateBytes state = state_bytes(c, plan.best, cluster.machine);
  ClusterFaults faults = cluster_faults(cluster, plan.ranks, state.all, state.of_rank);
  faults.rail_share = far_share(plan.best);
  plan.reliability = expect_reliability(faults.parts);
  plan.simulated = simulate_cluster(faults, search.interruptions, 1e15, 1);
  plan.tokens_per_day = static_cast<double>(plan.batch_tokens) / plan.best.time.seconds * kDay *
                        plan.simulated.useful;
  return plan;
}

}  // namespace moraine
