// RunData: one loader for each phase; a dataset goes on where the phase before left it.
#include "train/run_data.h"

#include <algorithm>
#include <mutex>

#include "base/error.h"

namespace moraine {

struct RunData::Phase {
  LoaderOptions options;
  int64_t sequences = 0;  // of the whole phase
  std::once_flag started;
  std::unique_ptr<Loader> loader;  // from epoch 0 on, until it is started
};

RunData::RunData(FileSystem& fs, const RunConfig& config, const Timeline& timeline) : fs_(fs) {
  for (size_t p = 0; p < config.phases.size(); ++p) {
    const PhaseConfig& settings = config.phases[p];
    Phase& phase = *phases_.emplace_back(std::make_unique<Phase>());
    phase.options = {.sources = {},
                     .sequence = settings.sequence > 0 ? settings.sequence : config.train.sequence,
                     .seed = static_cast<uint64_t>(config.train.seed),
                     .start_epochs = {},
                     .pack = config.data.pack};
    phase.sequences = timeline.phase_sequences(static_cast<int64_t>(p));
    for (const DataSource& source : settings.train)
      phase.options.sources.push_back({source.path, source.weight});
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
    for (int64_t i = 0; i < phase->loader->num_sources(); ++i)
      hasher.add_text(hash_hex(phase->loader->dataset(i).hash()));
  }
  hash_ = hasher.digest();
}

RunData::~RunData() = default;

const TokenMeaning& RunData::meaning() const { return phases_.front()->loader->meaning(); }

std::vector<double> RunData::start_epochs(int64_t phase) const {
  std::vector<double> epochs;
  for (const MixtureSource& source : phases_[static_cast<size_t>(phase)]->options.sources) {
    double consumed = 0;
    for (int64_t before = phase - 1; before >= 0 && consumed == 0; --before) {
      const Phase& earlier = *phases_[static_cast<size_t>(before)];
      for (size_t i = 0; i < earlier.options.sources.size(); ++i) {
        if (earlier.options.sources[i].path == source.path)
          consumed = loader(before).epochs_at(earlier.sequences)[i];
      }
    }
    epochs.push_back(consumed);
  }
  return epochs;
}

const Loader& RunData::loader(int64_t number) const {
  Phase& phase = *phases_[static_cast<size_t>(number)];
  std::call_once(phase.started, [&] {
    LoaderOptions options = phase.options;
    options.start_epochs = start_epochs(number);
    if (std::all_of(options.start_epochs.begin(), options.start_epochs.end(),
                    [](double epoch) { return epoch == 0; }))
      return;
    auto started = std::make_unique<Loader>(fs_, options);
    for (int64_t i = 0; i < started->num_sources(); ++i) {
      if (started->dataset(i).hash() == phase.loader->dataset(i).hash()) continue;
      throw_error(Code::kCorrupt,
                  "phase[{}]: dataset {} has other content than when the run began; restore it",
                  number, started->dataset(i).folder());
    }
    phase.loader = std::move(started);
  });
  return *phase.loader;
}

void RunData::read(const StepPlan& plan, int64_t skip, int64_t first, int64_t count,
                   SequenceBatch* out) const {
  loader(plan.phase).read(plan.first_sequence + skip + first, count, out);
}

void RunData::prefetch(const StepPlan& plan, int64_t skip) const {
  loader(plan.phase).prefetch(plan.first_sequence + skip, plan.num_sequences);
}

}  // namespace moraine
