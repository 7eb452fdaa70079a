// A trainer on a dry arena, among ranks that are not there.
#include "train/run_memory.h"

#include <algorithm>

#include "base/error.h"
#include "train/run_mesh.h"

namespace moraine {

Cache make_sample_cache(Arena& arena, const RunConfig& config, Trainer& trainer) {
  const int64_t positions = trainer.model().options().positions;
  return make_cache(arena, config.model, compute_dtype(config),
                    {.pages = (positions + kPageRows - 1) / kPageRows});
}

namespace {

void take_planned(Arena& arena, const RunConfig& config, const Mesh& mesh,
                  const TrainerOptions& options) {
  const Timeline timeline(config);
  PlannedRanks planned(mesh);
  Pool pool(config.train.threads > 0 ? static_cast<int>(config.train.threads)
                                     : std::max(1, usable_cores() / mesh.ranks));
  Trainer trainer(arena, pool, config, timeline, planned.ranks(), options);
  if (!config.data.tokenizer.empty() || !config.train.init.empty())
    make_sample_cache(arena, config, trainer);
}

}  // namespace

void plan_run_memory(Arena& arena, const RunConfig& config, int ranks, int rank, int64_t phase) {
  plan_run_memory(arena, config, {ranks, rank, phase}, Machine());
}

void plan_run_memory(Arena& arena, const RunConfig& config, const PlannedRank& of,
                     const Machine& machine) {
  TrainerOptions options = trainer_options(config, Timeline(config), machine);
  options.phase = of.phase;
  options.gpu = of.gpu;
  options.links = of.links;
  take_planned(arena, config, run_mesh(config, of.ranks, of.rank, of.phase), options);
}

}  // namespace moraine
