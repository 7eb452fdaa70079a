// FaultPlan: which faults hit a run, and when, as a function of a seed.
//
// Times between faults are exponential, so that they come in bursts and pauses, as faults do; a second one often comes
// on the way back from the first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moraine {

enum class ChaosFault : uint8_t {
  kKill,            // SIGKILL to a rank
  kStop,            // SIGSTOP to a rank, for good
  kSlow,            // a rank runs a third of the time, for a while
  kKillSupervisor,  // SIGKILL to the supervisor, which is started again
  kFlip,            // a byte of the newest checkpoint on disk is changed, and a rank killed
  kTruncate,        // a file of it is cut, and a rank killed
  kFlipMemory,      // a byte of the newest copy in memory is changed, and a rank killed
  kFailWrites,      // no write of a rank to a file gets through, for a while
  kMemoryPressure,  // half of the memory that is left is taken, for a while
  kFillDisk,        // no room is left where the run is, for a while
  kFlipWeights,     // a bit of a rank's weights is changed while it runs
  kFlipGradients,   // of the gradients of a slot
  kLinkDown,        // a link between two hosts: no carrier, for a while
  kLinkSilent,      // it swallows everything, both ways
  kLinkOneWay,      // one way
  kLinkLarge,       // large packets alone
  kLinkFlap,        // it goes down and up five times a second
  kLinkDrop,        // it drops packets now and then
  kLinksAll,        // all links between the hosts swallow everything
};

struct ChaosKind {
  ChaosFault fault;
  const char* name;
  const char* what;
};
const std::vector<ChaosKind>& chaos_kinds();
const char* chaos_name(ChaosFault fault);
inline bool is_of_a_link(ChaosFault fault) { return fault >= ChaosFault::kLinkDown; }
// Errors: kInvalidArgument, with the names there are.
ChaosFault chaos_fault(const std::string& name);

struct PlannedFault {
  double after = 0;  // seconds since the fault before
  ChaosFault fault = ChaosFault::kKill;
  int rank = 0;
  double seconds = 0;  // how long, of those that end
  double place = 0;    // in [0, 1): which file, which byte
};

struct FaultPlanOptions {
  uint64_t seed = 1;
  int64_t faults = 10;
  double mean_seconds = 5;  // between faults
  int ranks = 1;
  std::vector<ChaosFault> kinds;  // to draw from
};
std::vector<PlannedFault> plan_faults(const FaultPlanOptions& options);

}  // namespace moraine
