// RunState: what a run knows beside its tensors; in every checkpoint.
#pragma once

#include <cstdint>

#include "checkpoint/checkpoint.h"
#include "train/spike.h"
#include "train/timeline.h"

namespace moraine {

struct RunState {
  SpikeDetector spike;
  int64_t step = 0;            // completed
  int64_t skip_sequences = 0;  // left out by rollbacks, of phase skip_phase
  int64_t skip_phase = 0;
  int64_t rollbacks = 0;
  int64_t verified_step = 0;  // until here ranks have checked each other (diverged.h)
  double loss = 0;            // of the last step

  int64_t skip(const StepPlan& plan) const { return plan.phase == skip_phase ? skip_sequences : 0; }
};

// As info's step and values.
void write_state(const RunState& state, CheckpointInfo* info);
// Errors: kCorrupt: a value is missing, or none that a run of this config writes.
RunState read_state(const CheckpointInfo& info, const RunConfig& config, const Timeline& timeline);

}  // namespace moraine
