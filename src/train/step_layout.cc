// The largest over all phases and sizes of the ramp.
#include "train/step_layout.h"

#include <algorithm>

#include "train/run_mesh.h"

namespace moraine {

int64_t slot_sequences(const RunConfig& c, const StepPlan& plan) {
  return plan.num_sequences / c.train.slots;
}

int64_t micro_sequences(const RunConfig& c, const StepPlan& plan) {
  const int64_t per_slot = slot_sequences(c, plan);
  return c.train.micro_sequences > 0 && per_slot % c.train.micro_sequences == 0
             ? c.train.micro_sequences
             : per_slot;
}

ContextLayout micro_layout(const RunConfig& c, const StepPlan& plan) {
  return {.ranks = phase_context(c, plan.phase),
          .sequences = micro_sequences(c, plan),
          .length = plan.sequence};
}

StepExtents step_extents(const RunConfig& c, const Timeline& timeline, const Mesh& mesh) {
  for (size_t i = 0; i < c.phases.size(); ++i) {  // every phase's degrees must fit the ranks
    run_mesh(c, mesh.ranks, mesh.rank, static_cast<int64_t>(i));
  }
  StepExtents most;
  most.rows = most.positions = c.train.sequence;
  for (const StepPlan& plan : timeline.kinds()) {
    const ContextLayout layout = micro_layout(c, plan);
    if (layout.ranks > 1) check_context(layout);
    most.rows = std::max(most.rows, layout.most_rows());
    most.positions = std::max(most.positions, plan.sequence);
    most.slots = std::max(most.slots, c.train.slots * layout.ranks / mesh.ranks);
  }
  return most;
}

}  // namespace moraine
