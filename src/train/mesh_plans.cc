// MeshPlans: enumerates powers of two and divisors, and keeps what the trainer's own checks let pass.
#include "train/mesh_plans.h"

#include <algorithm>

#include "base/error.h"
#include "train/run_memory.h"
#include "train/run_mesh.h"
#include "train/step_layout.h"

namespace moraine {
namespace {

std::vector<int64_t> powers_up_to(int64_t most) {
  std::vector<int64_t> powers;
  for (int64_t p = 1; p <= most; p *= 2) powers.push_back(p);
  return powers;
}

// Sequences of a slot at a time: the divisors of all, or what the config says.
std::vector<int64_t> micro_choices(const RunConfig& c, const MeshSearch& search,
                                   const StepPlan& plan) {
  if (!search.micro_sequences) return {micro_sequences(c, plan)};
  std::vector<int64_t> divisors;
  const int64_t all = slot_sequences(c, plan);
  for (int64_t n = 1; n <= all; ++n) {
    if (all % n == 0) divisors.push_back(n);
  }
  return divisors;
}

StepPlan plan_of_step(const Timeline& timeline, int64_t step) {
  return timeline.at(step < 0 ? timeline.steps() - 1 : step);
}

// Meshes and choices, whether the trainer would take them or not.
std::vector<MeshPlan> all_plans(const RunConfig& c, int ranks, const MeshSearch& search,
                                const StepPlan& last) {
  std::vector<MeshPlan> plans;
  const std::vector<int64_t> contexts =
      search.context ? powers_up_to(ranks) : std::vector<int64_t>{phase_context(c, last.phase)};
  const std::vector<Recompute> recomputes =
      search.recompute ? std::vector<Recompute>{Recompute::kNone, Recompute::kLayer}
                       : std::vector<Recompute>{phase_recompute(c, last.phase)};
  const std::vector<int64_t> micros = micro_choices(c, search, last);
  for (const int64_t context : contexts) {
    for (const int64_t expert : powers_up_to(ranks)) {
      const Mesh mesh = {
          .ranks = ranks, .context = static_cast<int>(context), .expert = static_cast<int>(expert)};
      for (size_t i = 0; i < recomputes.size() * micros.size(); ++i) {
        plans.push_back({.mesh = mesh,
                         .recompute = recomputes[i / micros.size()],
                         .micro_sequences = micros[i % micros.size()]});
      }
    }
  }
  return plans;
}

// Fills in the time. Throws what the trainer would.
void add_time(MeshPlan& plan, const RunConfig& config, const Place& place, const Machine& machine,
              const MeshSearch& search) {
  const RunConfig c = with_plan(config, plan, search.step);
  const Timeline timeline(c);
  const StepPlan last = plan_of_step(timeline, search.step);
  const Mesh mesh = run_mesh(c, plan.mesh.ranks, 0);
  step_extents(c, timeline, mesh);
  const TrainerOptions options = trainer_options(c, timeline, machine);
  const Mesh in_phase = with_context(mesh, phase_context(c, last.phase));
  StepWork work = step_work(c, last, in_phase, options);
  if (search.imbalance) work.rank.imbalance = search.imbalance(mesh.expert);
  work.rank.document = search.document;
  plan.time = step_time(work, in_phase, place, machine);
}

void add_memory(MeshPlan& plan, const RunConfig& config, const Place& place, const Machine& machine,
                const MeshSearch& search) {
  Arena arena(Arena::Mode::kDry);
  plan_run_memory(arena, with_plan(config, plan, search.step), {plan.mesh.ranks}, machine);
  plan.bytes = arena.bytes();
  const int64_t here = std::min<int64_t>(place.ranks_per_host, plan.mesh.ranks);
  plan.fits = search.memory_bytes == 0 || plan.bytes * here <= search.memory_bytes;
}

}  // namespace

RunConfig with_plan(const RunConfig& config, const MeshPlan& plan, int64_t step) {
  RunConfig c = config;
  c.parallel.expert = plan.mesh.expert;
  const Timeline timeline(c);
  const StepPlan last = plan_of_step(timeline, step);
  if (phase_context(c, last.phase) != plan.mesh.context) {
    c.parallel.context = plan.mesh.context;
    for (PhaseConfig& phase : c.phases) phase.context = 0;
  }
  c.train.recompute = plan.recompute;
  for (PhaseConfig& phase : c.phases) {
    phase.expert = 0;
    phase.recompute = PhaseRecompute::kAsTrain;
  }
  if (micro_sequences(c, last) != plan.micro_sequences)
    c.train.micro_sequences = plan.micro_sequences;
  return c;
}

std::vector<MeshPlan> plan_meshes(const RunConfig& config, const Place& place,
                                  const Machine& machine, int ranks, const MeshSearch& search) {
  const Timeline timeline(config);
  const StepPlan last = plan_of_step(timeline, search.step);
  std::vector<MeshPlan> feasible;
  std::string why;
  for (MeshPlan& plan : all_plans(config, ranks, search, last)) {
    try {
      add_time(plan, config, place, machine, search);
      feasible.push_back(std::move(plan));
    } catch (const Error& e) {
      if (why.empty()) why = e.what();  // of the smallest mesh
    }
  }
  if (feasible.empty())
    throw_error(Code::kInvalidArgument, "plan for {} ranks: no mesh is feasible: {}", ranks, why);
  const auto sort = [&] {
    std::stable_sort(feasible.begin(), feasible.end(), [](const MeshPlan& a, const MeshPlan& b) {
      return a.fits != b.fits ? a.fits : a.time.seconds < b.time.seconds;
    });
  };
  sort();
  bool found = false;
  for (MeshPlan& plan : feasible) {
    if (found && search.until_fits) {
      plan.fits = false;
    } else {
      add_memory(plan, config, place, machine, search);
      found = found || plan.fits;
    }
  }
  sort();
  return feasible;
}

}  // namespace moraine
