// TrainerOptions: what decides the speed of a step; the same on all ranks.
//
// Both follow from [parallel] and, where that leaves them open, from the machine file. The variant
// decides the order of sums as well, if ranks share sequences.
#pragma once

#include "machine/machine.h"
#include "parallel/context_attention.h"
#include "train/timeline.h"

namespace moraine {

class DeviceCollectives;  // parallel/device_collectives.h
namespace gpu {
class Gpu;  // kernels/gpu/runtime.h
}

struct TrainerOptions {
  int64_t bucket_bytes = int64_t{4} << 20;  // of gradients that leave together
  ContextVariant variant = ContextVariant::kRing;
  int64_t phase = 0;              // whose layout (same_layout, run_config.h)
  double bytes_per_second = 5e9;  // between ranks, to weigh what placements of experts cost
  gpu::Gpu* gpu = nullptr;        // of train.device, with an arena in its memory; null: the CPU
  DeviceCollectives* links = nullptr;  // of its ranks; null: over the host
};

// Without a measured machine: nominal rates, so that the choice is no accident of a measurement.
TrainerOptions trainer_options(const RunConfig& config, const Timeline& timeline,
                               const Machine& machine);

}  // namespace moraine
