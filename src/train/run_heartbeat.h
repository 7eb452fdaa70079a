// RunHeartbeat: what a rank says of its run on the page that a watcher reads (base/heartbeat.h).
#pragma once

#include "kernels/profile.h"
#include "train/metrics.h"
#include "train/run.h"

namespace moraine {

// A step was taken. `profile`: of the step, for the time that was not spent waiting for other ranks.
void say_step(const StepMetrics& metrics, const Profile& profile);
// Where the run stands, and the newest state that is stored.
void say_state(const Run& run);

}  // namespace moraine
