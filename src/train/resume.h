// Resume: where a run goes on from: the newest good checkpoint, a newer copy in memory, or the
// start.
#pragma once

#include "train/run.h"

namespace moraine {

// Fills weights, optimizer state and counters of an opened run; false: there was nothing to go on
// from. Rank 0 chooses, the others follow. Errors: kCorrupt (checkpoints, none of them whole),
// kInvalidArgument (the run began with another config or other data). Collective.
bool resume(Run& run);

// Initial weights, random or from a model.
void start_new(Run& run);

}  // namespace moraine
