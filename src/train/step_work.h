// StepWork: a run's config as the numbers that the planner computes with (plan/step_time.h).
#pragma once

#include "plan/step_time.h"
#include "train/timeline.h"
#include "train/trainer_options.h"

namespace moraine {

// Of the rank that has most of the optimizer's work. config.model.vocab_size and train.dtype must be known.
// Cost: milliseconds; with the number of parameters in the list times the ranks.
StepWork step_work(const RunConfig& config, const StepPlan& plan, const Mesh& mesh,
                   const TrainerOptions& options);

}  // namespace moraine
