// AutoPlan: what `parallel.plan = "auto"` is, settled once for a group of ranks.
//
// The planner's choice (mesh_plans.h) over how many ranks experts are divided, and of recomputation where nothing
// fits without it; for the last phase, and for all that have no layout of their own. The context degree stays as
// given: it changes the order of sums, and what is chosen here changes no bit.
#pragma once

#include "comm/transport.h"
#include "train/mesh_plans.h"
#include "train/run.h"

namespace moraine {

// The best plan that fits in `memory_bytes` of a host; if none does, the one that takes least.
MeshPlan choose_plan(const RunConfig& config, const Place& place, const Machine& machine, int ranks,
                     int64_t memory_bytes);

// config's `expert` and `recompute`, with the reason in the log. Rank 0 decides, with the machine file or nominal
// rates, and tells; unless these ranks have a plan (options.kept), which replan.h may have changed. Collective over all
// ranks of the transport, before they have a mesh.
// Errors: kInvalidArgument: no mesh is feasible on so many ranks.
void settle_plan(FileSystem& fs, RunConfig& config, const RunOptions& options,
                 Transport& transport);

}  // namespace moraine
