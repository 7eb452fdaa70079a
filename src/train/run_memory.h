// RunMemory: what a rank of a run takes, planned by the code that takes it.
#pragma once

#include "train/trainer.h"

namespace moraine {

// One sequence as long as the longest training sequence, for samples.
Cache make_sample_cache(Arena& arena, const RunConfig& config, Trainer& trainer);

// Takes what rank `rank` of `ranks` takes in a run of this config with the layout of `phase`, from a (dry) arena.
void plan_run_memory(Arena& arena, const RunConfig& config, int ranks = 1, int rank = 0,
                     int64_t phase = 0);
// The same of a run with this machine file: it decides the size of buckets, and who gathers keys.
struct PlannedRank {
  int ranks = 1, rank = 0;
  int64_t phase = 0;
  gpu::Gpu* gpu = nullptr;             // of the arena; null: the CPU
  DeviceCollectives* links = nullptr;  // of its ranks; null: over the host
};
void plan_run_memory(Arena& arena, const RunConfig& config, const PlannedRank& of,
                     const Machine& machine);

}  // namespace moraine
