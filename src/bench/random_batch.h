// RandomBatch: sequences of random tokens, for steps without data.
#pragma once

#include "train/trainer.h"

namespace moraine {

// Sequences [first, first + count) of the step: a function of plan and vocabulary.
void read_random(const StepPlan& plan, int64_t vocab, int64_t first, int64_t count,
                 SequenceBatch* out);

}  // namespace moraine
