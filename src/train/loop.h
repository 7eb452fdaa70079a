// Loop: the training run, step by step.
#pragma once

#include "train/run.h"

namespace moraine {

// Opens (or resumes) the run in options.out and goes on to its end. Logs to stderr, writes metrics,
// events, checkpoints and report.html under options.out.
RunResult train(FileSystem& fs, const RunConfig& config, const RunOptions& options);

}  // namespace moraine
