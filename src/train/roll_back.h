// RollBack: what is done about a bad step.
#pragma once

#include "train/run.h"

namespace moraine {

// Logs it. True: back to the last good checkpoint; false: the step is skipped.
// Errors: kDiverged: spike.policy is stop. Collective.
bool must_roll_back(Run& run, const StepResult& result);

// Gives up the steps since the last good checkpoint, and the data that they read.
// Errors: kDiverged: there is none, or spike.rollbacks_max are used up. Collective.
void roll_back(Run& run);

}  // namespace moraine
