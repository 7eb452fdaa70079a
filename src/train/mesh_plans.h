// MeshPlans: every way in which some ranks can do a run's step, with its time and memory, best first.
//
// Slots, sequence, batch and model are the run's: they decide its answer. What is left is the mesh (data x context x
// expert), recomputation, and the sequences of a slot that are computed at a time.
//
// Feasible: what Trainer would take: mesh.h's rules and step_layout.h's, in every phase.
// Errors:   kInvalidArgument: no feasible plan: why the config's own mesh is none.
// Cost:     a dry arena for each plan: milliseconds.
#pragma once

#include <functional>
#include <vector>

#include "train/run_config.h"
#include "train/step_work.h"

namespace moraine {

// What may differ from the config.
struct MeshSearch {
  bool context = true, recompute = true, micro_sequences = false;
  int64_t memory_bytes = 0;  // of a host, all its ranks together; 0: any
  // Rows of the rank that has most over the mean, where experts are divided over so many ranks. Empty: 1.
  std::function<double(int64_t expert)> imbalance = {};
  int64_t step = -1;     // whose phase and batch; negative: the last, the largest batch of a ramp
  int64_t document = 0;  // positions; 0: as long as a sequence
  // Memory of the fastest ones only, until one fits; those behind it have 0 bytes and `fits` false. For many ranks.
  bool until_fits = false;
};

struct MeshPlan {
  Mesh mesh;
  Recompute recompute = Recompute::kNone;
  int64_t micro_sequences = 0;  // of a slot, at a time
  int64_t bytes = 0;            // planned memory of rank 0
  bool fits = true;
  StepTime time = {};
};

// What of a plan changes no bit: a run may go on with another one.
struct MeshChoice {
  int64_t expert = 1;
  Recompute recompute = Recompute::kNone;
  bool operator==(const MeshChoice&) const = default;
};
inline MeshChoice choice_of(const MeshPlan& plan) { return {plan.mesh.expert, plan.recompute}; }

// The config with a plan's choices in it, in all phases; made for `step`, negative: the last.
RunConfig with_plan(const RunConfig& config, const MeshPlan& plan, int64_t step = -1);

// Those that fit first, then by time; equal ones in the order of
// enumeration: context, expert, recompute, micro-batch, each from small to large.
std::vector<MeshPlan> plan_meshes(const RunConfig& config, const Place& place,
                                  const Machine& machine, int ranks, const MeshSearch& search);

}  // namespace moraine
