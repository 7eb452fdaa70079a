// ClusterPlan: the mesh planner at size, then what failures leave of its tokens.
#include "train/cluster_plan.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "train/run_memory.h"

namespace moraine {
namespace {

constexpr double kDay = 24 * 3600;

// The most ranks that the trainer can use of those there are.
int64_t usable_ranks(const RunConfig& config, int64_t ranks) {
  for (int64_t n = ranks; n > 0; --n) {
    try {
      run_mesh(config, static_cast<int>(n), 0);
      return n;
    } catch (const Error&) {
      continue;
    }
  }
  return 1;
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

}  // namespace

RunConfig grow_batch(const RunConfig& config, int64_t ranks) {
  const int64_t wanted = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(ranks)));
  RunConfig c = config;
  if (c.train.slots >= wanted) return c;
  const int64_t factor = wanted / c.train.slots;
  c.train.slots = wanted;
  c.train.batch_tokens *= factor;
  for (int64_t& batch : c.train.ramp_batch_tokens) batch *= factor;
  for (PhaseConfig& phase : c.phases) phase.batch_tokens *= factor;
  return c;
}

ClusterPlan plan_cluster(const RunConfig& config, const Cluster& cluster, int64_t ranks,
                         const ClusterSearch& search) {
  const RunConfig c = grow_batch(config, ranks);
  ClusterPlan plan{.ranks_asked = ranks, .ranks = usable_ranks(c, ranks)};
  const Place place = place_in_cluster(cluster, plan.ranks);
  plan.meshes =
      plan_meshes(c, place, cluster.machine, static_cast<int>(plan.ranks),
                  {.memory_bytes = static_cast<int64_t>(cluster.memory_gib * (int64_t{1} << 30)),
                   .imbalance = [most = search.imbalance](int64_t) { return most; },
                   .document = search.document,
                   .until_fits = true});
  plan.best = plan.meshes.front();
  const Timeline timeline(c);
  plan.batch_tokens = timeline.at(timeline.steps() - 1).batch_tokens;
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
