// OpenRun: a run, opened: config, data, machine, memory, where it goes on from, and that all ranks
// have the same.
#pragma once

#include "train/run.h"

namespace moraine {

// Collective.
std::unique_ptr<Run> open_run(FileSystem& fs, const RunConfig& config, const RunOptions& options,
                              Transport& transport);

}  // namespace moraine
