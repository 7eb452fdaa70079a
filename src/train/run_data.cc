// RunData: one loader for each phase; a dataset goes on where the phase before left it.
#include "train/run_data.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace moraine {
namespace {

void add_range(std::vector<EpochRange>* ranges, EpochRange more) {
  if (more.end <= more.begin) return;
  std::vector<EpochRange> apart;
  for (const EpochRange& range : *ranges) {
    if (range.end < more.begin || more.end < range.begin) {
      apart.push_back(range);
    } else {
      more = {std::min(range.begin, more.begin), std::max(range.end, more.end)};
    }
  }
  apart.push_back(more);
  std::sort(apart.begin(), apart.end(),
            [](const EpochRange& a, const EpochRange& b) { return a.begin < b.begin; });
  *ranges = std::move(apart);
}

}  // namespace

struct RunData::Phase {
  LoaderOptions options;
  int64_t sequences = 0;        // of the whole phase
  std::vector<Hash128> hashes;  // of the datasets, as they were when the run began
  std::mutex mutex;
  bool started = false;            // the loader begins where the phases before end
  std::unique_ptr<Loader> loader;  // of options
};

RunData::RunData(FileSystem& fs, const RunConfig& config, const Timeline& timeline) : fs_(fs) {
  for (size_t p = 0; p < config.phases.size(); ++p) {
    const PhaseConfig& settings = config.phases[p];
    Phase& phase = *phases_.emplace_back(std::make_unique<Phase>());
    phase.options = {.sources = {},
                     .sequence = settings.sequence > 0 ? settings.sequence : config.train.sequence,
                     .seed = static_cast<uint64_t>(config.train.seed),
                     .start_epochs = {},
                     .left_out = {},
                     .pack = config.data.pack};
    phase.sequences = timeline.phase_sequences(static_cast<int64_t>(p));
    for (const DataSource& source : settings.train)
      phase.options.sources.push_back({source.path, source.weight});
    phase.options.start_epochs.resize(phase.options.sources.size());
    phase.options.left_out.resize(phase.options.sources.size());
    phase.loader = std::make_unique<Loader>(fs, phase.options);
    if (!(phase.loader->meaning() == meaning())) {
      throw_error(Code::kInvalidArgument,
                  "phase[{}]: its data was made with another tokenizer than phase[0]'s; build it "
                  "again with the same one",
                  p);
    }
  }
  Hasher hasher;
  for (const std::unique_ptr<Phase>& phase : phases_) {
    for (int64_t i = 0; i < phase->loader->num_sources(); ++i) {
      phase->hashes.push_back(phase->loader->dataset(i).hash());
      hasher.add_text(hash_hex(phase->hashes.back()));
    }
  }
  hash_ = hasher.digest();
}

RunData::~RunData() = default;

const TokenMeaning& RunData::meaning() const { return phases_.front()->loader->meaning(); }

int64_t RunData::skipped(int64_t phase) const {
  const auto found = skips_.find(phase);
  return found == skips_.end() ? 0 : found->second;
}

void RunData::skip(const Skips& skips) {
  skips_.clear();
  left_out_.clear();
  for (const std::unique_ptr<Phase>& phase : phases_) phase->started = false;
  for (const Skip& skip : skips) {
    // The last first: where it begins depends on what those before it left out.
    for (int64_t later = std::ssize(phases_) - 1; later > skip.phase; --later)
      if (skipped(later) > 0) fix_skipped(later);
    skips_[skip.phase] += skip.sequences;
    for (const std::unique_ptr<Phase>& phase : phases_) phase->started = false;
  }
}

// What the phase left out so far, from its beginning on, becomes parts of its datasets that nobody reads.
void RunData::fix_skipped(int64_t number) {
  const Phase& phase = *phases_[static_cast<size_t>(number)];
  const std::vector<double> begin = loader(number).epochs_at(0),
                            end = loader(number).epochs_at(skipped(number));
  for (size_t i = 0; i < begin.size(); ++i)
    add_range(&left_out_[hash_hex(phase.hashes[i])], {begin[i], end[i]});
  skips_.erase(number);
}

std::vector<double> RunData::start_epochs(int64_t phase) const {
  std::vector<double> epochs;
  for (const Hash128& dataset : phases_[static_cast<size_t>(phase)]->hashes) {
    double consumed = 0;
    for (int64_t before = phase - 1; before >= 0 && consumed == 0; --before) {
      const Phase& earlier = *phases_[static_cast<size_t>(before)];
      for (size_t i = 0; i < earlier.options.sources.size(); ++i) {
        if (earlier.hashes[i] == dataset)
          consumed = loader(before).epochs_at(earlier.sequences + skipped(before))[i];
      }
    }
    epochs.push_back(consumed);
  }
  return epochs;
}

const Loader& RunData::loader(int64_t number) const {
  Phase& phase = *phases_[static_cast<size_t>(number)];
  const std::lock_guard lock(phase.mutex);
  if (phase.started) return *phase.loader;
  LoaderOptions options = phase.options;
  options.start_epochs = start_epochs(number);
  options.left_out.clear();
  for (const Hash128& dataset : phase.hashes) {
    const auto found = left_out_.find(hash_hex(dataset));
    options.left_out.push_back(found == left_out_.end() ? std::vector<EpochRange>()
                                                        : found->second);
  }
  if (options.start_epochs != phase.options.start_epochs ||
      options.left_out != phase.options.left_out) {
    auto moved = std::make_unique<Loader>(fs_, options);
    for (int64_t i = 0; i < moved->num_sources(); ++i) {
      if (moved->dataset(i).hash() == phase.hashes[static_cast<size_t>(i)]) continue;
      throw_error(Code::kCorrupt,
                  "phase[{}]: dataset {} has other content than when the run began; restore it",
                  number, moved->dataset(i).folder());
    }
    phase.loader = std::move(moved);
    phase.options = std::move(options);
  }
  phase.started = true;
  return *phase.loader;
}

void RunData::read(const StepPlan& plan, int64_t first, int64_t count, SequenceBatch* out) const {
  loader(plan.phase).read(plan.first_sequence + skipped(plan.phase) + first, count, out);
}

void RunData::prefetch(const StepPlan& plan) const {
  loader(plan.phase).prefetch(plan.first_sequence + skipped(plan.phase), plan.num_sequences);
}

}  // namespace moraine
