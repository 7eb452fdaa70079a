// LearningRate: the rate of each step of a run, as a pure function of its config.
#pragma once

#include "train/timeline.h"

namespace moraine {

// A share of optimizer.learning_rate: the schedule, times the phase's own peak.
double learning_rate_scale(const RunConfig& config, const Timeline& timeline, const StepPlan& plan);

// Of the schedule, in tokens.
int64_t warmup_tokens(const RunConfig& config, const Timeline& timeline);

}  // namespace moraine
