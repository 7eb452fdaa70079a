// The plan of the phase that takes most, from dry arenas; sums over ranks.
#include "train/check_memory.h"

#include <algorithm>

#include "base/error.h"
#include "base/resident.h"
#include "train/run.h"
#include "train/run_kept.h"
#include "train/run_memory.h"

namespace moraine {
namespace {

double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

struct Planned {
  int64_t host = 0, device = 0;
};

// Of the phase that takes most.
Planned planned_bytes(const Run& run, const Transport& transport) {
  Planned most;
  const RunConfig& c = run.config;
  for (size_t i = 0; i < c.phases.size(); ++i) {
    const int64_t phase = static_cast<int64_t>(i);
    if (i > 0 && same_layout(c, phase - 1, phase)) continue;
    Arena planned(Arena::Mode::kDry, run.gpu_memory.get());
    plan_run_memory(planned, c,
                    {.ranks = transport.size(),
                     .rank = transport.rank(),
                     .phase = phase,
                     .gpu = run.gpu.get(),
                     .links = run.links.get()},
                    Machine());
    most.device = std::max(most.device, planned.device_bytes());
    most.host = std::max(most.host, planned.bytes() - planned.device_bytes());
  }
  return most;
}

// Survivors have theirs already; who takes a lost rank's place has nothing.
RankMemory memory_of_this_rank(const Run& run, const Transport& transport) {
  const Planned planned = planned_bytes(run, transport);
  const int64_t kept = run.options.kept != nullptr ? run.options.kept->memory.bytes() : 0;
  RankMemory mine{.host = transport.host_of(transport.rank()),
                  .host_bytes = std::max<int64_t>(0, planned.host - kept),
                  .host_free = available_memory_bytes()};
  const std::optional<int64_t> free = run.gpu == nullptr ? std::nullopt : run.gpu->free_bytes();
  if (free) {
    mine.device = run.gpu->number();
    mine.device_bytes = planned.device;
    mine.device_free = *free;
  } else {
    mine.host_bytes += planned.device;
  }
  return mine;
}

}  // namespace

std::string memory_shortage(std::span<const RankMemory> all, int mine) {
  const RankMemory& own = all[static_cast<size_t>(mine)];
  int64_t on_host = 0, on_device = 0, host_ranks = 0, device_ranks = 0, device_free = INT64_MAX;
  for (const RankMemory& r : all) {
    if (r.host != own.host) continue;
    on_host += r.host_bytes;
    ++host_ranks;
    if (own.device < 0 || r.device != own.device) continue;
    on_device += r.device_bytes;
    ++device_ranks;
    device_free = std::min(device_free, r.device_free);
  }
  if (on_host > own.host_free)
    return fmt::format(
        "the run plans {:.1f} MiB on each of {} ranks of this host, and {:.1f} MiB "
        "are available",
        mib(own.host_bytes), host_ranks, mib(own.host_free));
  if (device_ranks > 0 && on_device > device_free)
    return fmt::format(
        "the run plans {:.1f} MiB of device {} on each of {} ranks that share it, and {:.1f} MiB "
        "of it are free",
        mib(own.device_bytes), own.device, device_ranks, mib(device_free));
  return "";
}

// The kernel hands out more than there is, and kills whoever touches it: better to say so before
// step one.
void check_memory(Run& run, const Transport& transport) {
  check_memory(memory_of_this_rank(run, transport), run.ranks.world);
}

void check_memory(const RankMemory& mine, Communicator& world) {
  std::vector<RankMemory> all(static_cast<size_t>(world.size()));
  all_gather_equal(world, std::as_bytes(std::span(&mine, 1)),
                   std::as_writable_bytes(std::span(all)));
  // All ranks say the same, and end together.
  std::string missing;
  for (int rank = 0; rank < world.size() && missing.empty(); ++rank) {
    missing = memory_shortage(all, rank);
    if (!missing.empty() && rank != world.rank())
      missing = fmt::format("rank {}: {}", rank, missing);
  }
  if (missing.empty()) return;
  throw_error(Code::kInvalidArgument,
              "take memory: {}; `moraine plan memory` prints by name what takes it; "
              "train.recompute = \"layer\", fewer slots or a smaller micro batch need less",
              missing);
}

}  // namespace moraine
