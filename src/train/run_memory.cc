// A trainer on a dry arena, among ranks that are not there.
#include "train/run_memory.h"

#include <algorithm>

namespace moraine {

Mesh run_mesh(const RunConfig& c, int ranks, int rank) {
  return make_mesh(ranks, rank, c.parallel.expert, phase_context(c, 0), c.train.slots,
                   c.model.experts);
}

Cache make_sample_cache(Arena& arena, const RunConfig& config, Trainer& trainer) {
  const int64_t positions = trainer.model().options().positions;
  return make_cache(arena, config.model, compute_dtype(config),
                    {.pages = (positions + kPageRows - 1) / kPageRows});
}

void plan_run_memory(Arena& arena, const RunConfig& config, int ranks, int rank) {
  const Timeline timeline(config);
  PlannedRanks planned(run_mesh(config, ranks, rank));
  Pool pool(config.train.threads > 0 ? static_cast<int>(config.train.threads)
                                     : std::max(1, usable_cores() / ranks));
  Trainer trainer(arena, pool, config, timeline, planned.ranks(),
                  trainer_options(config, timeline, Machine()));
  if (!config.data.tokenizer.empty() || !config.train.init.empty())
    make_sample_cache(arena, config, trainer);
}

}  // namespace moraine
