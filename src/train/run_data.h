// RunData: which tokens each slot of each step reads.
//
// One loader per phase. A source that an earlier phase used goes on where that phase left it, in
// epochs.
#pragma once

#include <memory>
#include <vector>

#include "data/loader.h"
#include "train/timeline.h"

namespace moraine {

class RunData {
 public:
  // Errors: those of Loader; kInvalidArgument if datasets were made with different tokenizers.
  RunData(FileSystem& fs, const RunConfig& config, const Timeline& timeline);

  // Sequences [first, first + count) of a step's, counted inside the step; `skip` sequences of the
  // phase are left out before (a rollback skips data).
  void read(const StepPlan& plan, int64_t skip, int64_t first, int64_t count,
            SequenceBatch* out) const;
  void prefetch(const StepPlan& plan, int64_t skip) const;

  const TokenMeaning& meaning() const { return loaders_.front()->meaning(); }
  const Loader& loader(int64_t phase) const { return *loaders_[static_cast<size_t>(phase)]; }
  // One hash over the content of all datasets, in order of phases and sources.
  Hash128 hash() const;

 private:
  std::vector<std::unique_ptr<Loader>> loaders_;
};

}  // namespace moraine
