// FaultPlan: a few draws for each fault.
#include "chaos/fault_plan.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/nearest.h"
#include "base/random.h"

namespace moraine {

const std::vector<ChaosKind>& chaos_kinds() {
  static const std::vector<ChaosKind> kinds = {
      {ChaosFault::kKill, "kill", "SIGKILL to a rank"},
      {ChaosFault::kStop, "stop", "SIGSTOP to a rank, for good"},
      {ChaosFault::kSlow, "slow", "a rank runs a third of the time, for 1 to 3 seconds"},
      {ChaosFault::kKillSupervisor, "kill-supervisor", "SIGKILL to the supervisor; started again"},
      {ChaosFault::kFlip, "flip", "a byte of the newest checkpoint is changed, a rank killed"},
      {ChaosFault::kTruncate, "truncate", "a file of the newest checkpoint is cut, a rank killed"},
      {ChaosFault::kFlipMemory, "flip-memory",
       "a byte of the newest copy in memory, a rank killed"},
      {ChaosFault::kFailWrites, "fail-writes",
       "no write of a rank gets through, for 1 to 3 seconds"},
      {ChaosFault::kMemoryPressure, "memory",
       "half of the free memory is taken, for 1 to 3 seconds"},
      {ChaosFault::kFillDisk, "fill-disk", "no room where the run is, for 1 to 3 seconds"},
      {ChaosFault::kFlipWeights, "flip-weights", "a bit of the weights of a rank that runs"},
      {ChaosFault::kFlipGradients, "flip-gradients",
       "a bit of gradients; only with train.slots = ranks, each its own experts and sequences"},
      {ChaosFault::kLinkDown, "link-down", "a link without carrier, for 1 to 3 seconds"},
      {ChaosFault::kLinkSilent, "link-silent", "a link that swallows everything"},
      {ChaosFault::kLinkOneWay, "link-one-way", "a link that swallows everything one way"},
      {ChaosFault::kLinkLarge, "link-large", "a link that swallows large packets"},
      {ChaosFault::kLinkFlap, "link-flap", "a link that goes down and up five times a second"},
      {ChaosFault::kLinkDrop, "link-drop", "a slow link that drops packets of those that wait"},
      {ChaosFault::kLinksAll, "links-all", "all links swallow everything, for 1 to 3 seconds"},
  };
  return kinds;
}

const char* chaos_name(ChaosFault fault) { return chaos_kinds()[static_cast<size_t>(fault)].name; }

ChaosFault chaos_fault(const std::string& name) {
  std::vector<std::string> names;
  for (const ChaosKind& kind : chaos_kinds()) {
    if (name == kind.name) return kind.fault;
    names.emplace_back(kind.name);
  }
  throw_error(Code::kInvalidArgument, "chaos: no fault '{}'{}", name,
              did_you_mean(name, names, {.then = "`--help` lists them"}));
}

std::vector<PlannedFault> plan_faults(const FaultPlanOptions& o) {
  constexpr double kShortest = 1, kLongest = 3;
  std::vector<PlannedFault> plan;
  for (int64_t i = 0; i < o.faults; ++i) {
    uint64_t draw = 0;
    const auto step = static_cast<uint64_t>(i);
    const auto uniform = [&] { return random_uniform(o.seed, Stream::kFaults, step, draw++); };
    const auto below = [&](size_t n) {
      return static_cast<size_t>(random_below(n, o.seed, Stream::kFaults, step, draw++));
    };
    PlannedFault f;
    f.after = -o.mean_seconds * std::log(uniform());
    f.fault = o.kinds[below(o.kinds.size())];
    f.rank = static_cast<int>(below(static_cast<size_t>(o.ranks)));
    f.seconds = kShortest + (kLongest - kShortest) * uniform();
    f.place = uniform();
    plan.push_back(f);
  }
  return plan;
}

}  // namespace moraine
