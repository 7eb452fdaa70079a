// Study: variants of one config at equal compute, several seeds each, as training runs of their own processes.
//
//   OUT/<variant>/seed-<n>.toml    the config of one run, complete: what `moraine train --config` takes
//   OUT/<variant>/seed-<n>/        its run directory; .out and .err beside it are what it said
//   OUT/study.json, study.html     the result, of the runs that have ended so far
//
// Runs go seed by seed, the variants of a seed one after another or `side_by_side` at once, with the cores divided.
// A run that has ended is not made again; one that was interrupted goes on. One that fails is told and counts as
// failed, and the others go on: that a block diverges is a result.
//
// Errors:  kInvalidArgument (equal_compute.h; a run in OUT has another config); kInterrupted by a signal: runs have
//          saved, the same command goes on; kIo.
// Threads: one, and processes.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "study/study_result.h"

namespace moraine {

struct StudyOptions {
  std::string program;  // moraine
  std::string out;
  std::string machine_file;  // of `moraine bench`; empty: every run measures briefly
  int64_t seeds = 3;         // the config's own and those that follow
  int64_t side_by_side = 1;
  const std::atomic<int>* stop_signal = nullptr;
  std::function<void(const std::string& line)> tell;  // what goes on
};

// Writes study.json and study.html after each run.
std::vector<VariantResult> run_study(FileSystem& fs, const std::vector<StudyConfig>& studies,
                                     const StudyOptions& options);

}  // namespace moraine
