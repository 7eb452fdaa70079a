// Save: checkpoints of a run: in the background, in memory, and the last one. All calls are
// collective.
#pragma once

#include "train/run.h"

namespace moraine {

// Steps that every run of this config saves, however often it was stopped: only to these may it
// roll back, or the answer would depend on the stops.
bool is_regular_save(const RunConfig& config, int64_t step);

// The live state as a checkpoint, in the foreground.
CheckpointWritten write_live_state(Run& run);
// The last checkpoint, unless it is there already. Returns its directory.
CheckpointWritten save_now(Run& run);
// A checkpoint in the background; waits for the one before.
void save_in_background(Run& run);
// The same into the memory of the hosts.
void copy_to_memory(Run& run);
// Whether a save in the background still has this rank's private copy.
bool saving(const Run& run);

}  // namespace moraine
