// SamePast: whether a run may go on under another config: every step that it took must stay the
// same.
//
// The length of a run (train.tokens, train.steps, tokens of a phase) and its schedule (the
// optimizer's schedule, decay, warm-up and floor) may change, as long as the steps already taken
// would have been the same ones: phase, batch, sequences and, to the bit, the learning rate. All
// other keys that decide the answer must be equal.
#pragma once

#include <string>

#include "train/run_config.h"

namespace moraine {

// What of the printed config must be the same, whatever length and schedule.
std::string past_text(const RunConfig& config);

struct StepDifference {
  int64_t step = 0;  // completed steps that are the same
  std::string text;  // what the next one does otherwise; empty: nothing, up to the steps asked for
};
StepDifference first_other_step(const RunConfig& run, const RunConfig& now, int64_t steps);

}  // namespace moraine
