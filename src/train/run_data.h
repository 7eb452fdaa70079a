// RunData: which tokens each slot of each step reads.
//
// One loader per phase. A source that an earlier phase used goes on where that phase left it, in
// epochs, with what rollbacks left out there. How many that are is counted epoch by epoch, and only
// when the later phase begins: a run of many epochs starts at once, and pays for what it has read.
//
// Errors:  those of Loader; kInvalidArgument if datasets were made with different tokenizers;
//          kCorrupt if a dataset is another when its phase begins than when the run did.
// Threads: const calls may run at once; none while skip() runs.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "data/loader.h"
#include "train/timeline.h"

namespace moraine {

class RunData {
 public:
  // Opens and checks the data of all phases.
  RunData(FileSystem& fs, const RunConfig& config, const Timeline& timeline);
  ~RunData();

  // By phase: so many sequences are left out before those that a step reads (a rollback skips data). Instead of what
  // was said before; phases that are not named leave out none.
  void skip(const std::map<int64_t, int64_t>& sequences);
  // Sequences [first, first + count) of a step's, counted inside the step.
  void read(const StepPlan& plan, int64_t first, int64_t count, SequenceBatch* out) const;
  void prefetch(const StepPlan& plan) const;

  const TokenMeaning& meaning() const;
  const Loader& loader(int64_t phase) const;
  // One hash over the content of all datasets, in order of phases and sources.
  Hash128 hash() const { return hash_; }

 private:
  struct Phase;
  std::vector<double> start_epochs(int64_t phase) const;  // of its sources
  int64_t skipped(int64_t phase) const;

  FileSystem& fs_;
  std::vector<std::unique_ptr<Phase>> phases_;
  std::map<int64_t, int64_t> skips_;  // by phase
  Hash128 hash_;
};

}  // namespace moraine
