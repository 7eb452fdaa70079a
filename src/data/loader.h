// Loader: training sequences of mixed, shuffled, packed data, by index.
//
// Sequence n is a function of (options, contents of the datasets): reading starts anywhere, on any
// rank and in any order, and there is no state to save. Which source it comes from: mixture.h.
// Which documents it holds: epoch_plan.h; source s has its own epochs, sequence k of s is the k-th
// of its plans one after another.
//
// A phase that changes the mixture goes on where the one before stopped: start_epochs =
// epochs_at(end of it). The order of a (dataset, epoch) does not depend on its place in `sources`,
// so no document is repeated before the epoch is over (unless `sequence` changes too: the remaining
// share is then of another packing). So are the borders of what is left out: exact in that packing.
//
// Rows:    a sequence has exactly `sequence` rows. Each piece of a document is one segment; a rest
//          without data is a segment of token 0 with target -1. So is the target of a row whose next token is marked as
//          only to be read (data/shard.h); packing does not look at marks.
// Errors:  kInvalidArgument: options; a dataset without any document of two tokens; one given
//          twice; datasets of different tokenizers. kNotFound, kCorrupt, kIo from opening and
//          reading.
// Threads: const calls from any thread.
// Cost:    read is a copy, plus 64 KiB hashed on each first touch. Entering an epoch plans it
//          (epoch_plan.h) under the source's lock; call prefetch from a thread that is ahead.
//          Starting inside epoch e plans epochs start..e once, to count their sequences. The last
//          two plans of a source are kept.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "data/dataset.h"
#include "data/epoch_plan.h"
#include "data/mixture.h"

namespace moraine {

struct MixtureSource {
  std::string path = {};  // a dataset
  double weight = 1;      // > 0; share of the sequences, relative to the other sources
};

// A part of what a source is over all epochs: [begin, end), 1.5 is the middle of the second.
struct EpochRange {
  double begin = 0, end = 0;
  bool operator==(const EpochRange&) const = default;
};

struct LoaderOptions {
  std::vector<MixtureSource> sources = {};
  int64_t sequence = 0;  // positions per sequence, >= 1
  uint64_t seed = 0;
  // Of each source: epochs consumed by the phases before; {}: 0.
  std::vector<double> start_epochs = {};
  // Of each source: what is passed over, ascending, apart; {}: nothing.
  std::vector<std::vector<EpochRange>> left_out = {};
  bool pack = true;
};

struct SequenceBatch {
  std::vector<int32_t> tokens;         // [count * sequence]
  std::vector<int32_t> targets;        // [count * sequence]; -1: none
  std::vector<int64_t> segment_begin;  // rows, ascending, first is 0, without the end
  int64_t num_targets = 0;             // targets >= 0
};

class Loader {
 public:
  Loader(FileSystem& files, const LoaderOptions& options);
  ~Loader();

  int64_t total_tokens() const;         // of all sources together
  int64_t total_targets() const;        // likewise; fewer where a source has marks
  const TokenMeaning& meaning() const;  // the same for all sources
  int64_t num_sources() const;
  const Dataset& dataset(int64_t source) const;

  // Epochs of each source consumed before sequence n, start_epochs included.
  std::vector<double> epochs_at(int64_t n) const;

  // Fills `out` with sequences [first, first + count), first >= 0, count >= 1.
  void read(int64_t first, int64_t count, SequenceBatch* out) const;
  void prefetch(int64_t first, int64_t count) const;  // plans, and read-ahead hints, for the same

  // The plan of one epoch of a source (for reports: sequences, efficiency, cuts).
  std::shared_ptr<const EpochPlan> plan(int64_t source, int64_t epoch) const;

 private:
  class Source;
  LoaderOptions options_;
  std::unique_ptr<Mixture> mixture_;
  std::vector<std::unique_ptr<Source>> sources_;
};

}  // namespace moraine
