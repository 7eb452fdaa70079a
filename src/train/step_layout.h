// StepLayout: how the sequences of a step are cut: into slots, micro-batches and the rows of ranks.
//
// Pure functions of config, timeline and mesh.
#pragma once

#include "parallel/context_rows.h"
#include "parallel/mesh.h"
#include "train/timeline.h"

namespace moraine {

// Sequences of one slot, and those of it that go through the model at a time.
int64_t slot_sequences(const RunConfig& config, const StepPlan& plan);
int64_t micro_sequences(const RunConfig& config, const StepPlan& plan);

// A micro-batch over the ranks that share its sequences (ranks == 1: nobody does).
ContextLayout micro_layout(const RunConfig& config, const StepPlan& plan);

// The most that any step of the run needs of this rank.
struct StepExtents {
  int64_t rows = 0;       // of a forward pass
  int64_t positions = 0;  // of a sequence
  int64_t slots = 1;
};
// Validation reads sequences of train.sequence, though no phase may.
// Errors: kInvalidArgument: a phase's sequences can not be shared by its ranks, or do not fit the
//         ranks.
StepExtents step_extents(const RunConfig& config, const Timeline& timeline, const Mesh& mesh);

}  // namespace moraine
