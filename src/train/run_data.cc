// RunData: one loader for each phase; a dataset goes on where the phase before left it.
#include "train/run_data.h"

#include <map>

#include "base/error.h"

namespace moraine {

RunData::RunData(FileSystem& fs, const RunConfig& config, const Timeline& timeline) {
  std::map<std::string, double> epochs;  // consumed so far, by path
  for (size_t p = 0; p < config.phases.size(); ++p) {
    const PhaseConfig& phase = config.phases[p];
    LoaderOptions options{.sources = {},
                          .sequence = phase.sequence > 0 ? phase.sequence : config.train.sequence,
                          .seed = static_cast<uint64_t>(config.train.seed),
                          .start_epochs = {},
                          .pack = config.data.pack};
    for (const DataSource& source : phase.train) {
      options.sources.push_back({source.path, source.weight});
      options.start_epochs.push_back(epochs[source.path]);
    }
    loaders_.push_back(std::make_unique<Loader>(fs, options));
    const Loader& loader = *loaders_.back();
    if (!(loader.meaning() == loaders_.front()->meaning())) {
      throw_error(Code::kInvalidArgument,
                  "phase[{}]: its data was made with another tokenizer than phase[0]'s; build it "
                  "again with the same one",
                  p);
    }
    if (p + 1 == config.phases.size()) break;  // planning every epoch takes its time
    const std::vector<double> after =
        loader.epochs_at(timeline.phase_sequences(static_cast<int64_t>(p)));
    for (size_t i = 0; i < phase.train.size(); ++i) epochs[phase.train[i].path] = after[i];
  }
}

void RunData::read(const StepPlan& plan, int64_t skip, int64_t first, int64_t count,
                   SequenceBatch* out) const {
  loader(plan.phase).read(plan.first_sequence + skip + first, count, out);
}

void RunData::prefetch(const StepPlan& plan, int64_t skip) const {
  loader(plan.phase).prefetch(plan.first_sequence + skip, plan.num_sequences);
}

Hash128 RunData::hash() const {
  Hasher hasher;
  for (const std::unique_ptr<Loader>& loader : loaders_) {
    for (int64_t i = 0; i < loader->num_sources(); ++i)
      hasher.add_text(hash_hex(loader->dataset(i).hash()));
  }
  return hasher.digest();
}

}  // namespace moraine
