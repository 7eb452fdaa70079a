// RunState: what a run knows beside its tensors; in every checkpoint.
#pragma once

#include <cstdint>

#include "checkpoint/checkpoint.h"
#include "train/skips.h"
#include "train/spike.h"
#include "train/timeline.h"

namespace moraine {

struct RunState {
  SpikeDetector spike;
  int64_t step = 0;  // completed
  Skips skips = {};  // what rollbacks left out
  int64_t rollbacks = 0;
  int64_t verified_step = 0;  // until here ranks have checked each other (diverged.h)
  double loss = 0;            // of the last step
};

// As info's step and values.
void write_state(const RunState& state, CheckpointInfo* info);
// Errors: kCorrupt: a value is missing, or none that a run of this config writes.
RunState read_state(const CheckpointInfo& info, const RunConfig& config, const Timeline& timeline);

}  // namespace moraine
