// RunData: which tokens each slot of each step reads.
//
// One loader per phase. A source that an earlier phase used goes on where that phase left it, in
// epochs, with what rollbacks left out there. How many that are is counted epoch by epoch, and only
// when the later phase begins: a run of many epochs starts at once, and pays for what it has read.
//
// A rollback moves what its phase reads, and so the end of that phase. If a later phase had begun and left out data
// before (the run went back over the border), that data is fixed where it lies in its datasets, and passed over by
// whatever phase comes there; the later phase then begins where the earlier ends.
//
// Errors:  those of Loader; kInvalidArgument if datasets were made with different tokenizers;
//          kCorrupt if a dataset is another when its phase begins than when the run did.
// Threads: const calls may run at once; none while skip() runs.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/loader.h"
#include "train/skips.h"
#include "train/timeline.h"

namespace moraine {

class RunData {
 public:
  // Opens and checks the data of all phases.
  RunData(FileSystem& fs, const RunConfig& config, const Timeline& timeline);
  ~RunData();

  // What rollbacks left out before that which steps read from now on. Instead of what was said before.
  void skip(const Skips& skips);
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
  void fix_skipped(int64_t phase);

  FileSystem& fs_;
  std::vector<std::unique_ptr<Phase>> phases_;
  std::map<int64_t, int64_t> skips_;  // by phase: of its mixture
  std::map<std::string, std::vector<EpochRange>>
      left_out_;  // by a dataset's hash: ascending, apart
  Hash128 hash_;
};

}  // namespace moraine
