// Loop: the training run, step by step.
#pragma once

#include "train/run.h"

namespace moraine {

// Opens (or resumes) the run in options.out and goes on to its end. Logs to stderr, writes metrics,
// events, checkpoints and report.html under options.out. Collective.
RunResult train(FileSystem& fs, const RunConfig& config, const RunOptions& options,
                Transport& transport);
// The same with all ranks as threads of this process.
RunResult train(FileSystem& fs, const RunConfig& config, const RunOptions& options, int ranks = 1);

}  // namespace moraine
