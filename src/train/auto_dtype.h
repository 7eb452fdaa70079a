// AutoDtype: what `train.dtype = "auto"` is, settled once for a run.
//
// The type of the run that goes on; else the one that is faster on rank 0's machine. A run's
// own config and its checkpoints hold what was settled.
#pragma once

#include "train/run.h"

namespace moraine {

// run.config's, with the reason in the log; run.machine is measured. Collective.
void settle_dtype(Run& run);

// For what is not a run (plan, bench): measured here.
void measure_dtype(RunConfig& config);

}  // namespace moraine
