// Policy: the decision table of the supervisor, as data.
//
// One row for each cause: what is done first, what is done when that did not help, and how often in an hour. The
// supervisor acts by it, `moraine supervise --explain` prints it, docs/supervisor.md shows the same.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace moraine {

enum class RunFault : uint8_t {
  kCrash,
  kKilled,
  kOutOfMemory,
  kHang,
  kStopped,
  kPeerLost,
  kDevice,
  kCorrupt,
  kDisk,
  kDiverged,
  kRankDiverged,
  kInterrupted,
  kInvalid,
  kUsage,
  kFailed,
  kStartFailed,
  kHostLost,
  kStraggler,
  kBadStep,
  kRollback,
  kLinkLost,
  kPeerSilent,
  kSaveFailed,
  kMemoryLow,
  kDiskLow,
  kEdacCorrected,
  kEdacUncorrected,
  kNicErrors,
  kCarrierLost,
  kHot,
};

// Which part of the machinery makes a fault good, from the cheapest.
enum class RecoveryLevel : uint8_t { kLink, kOperation, kStep, kReplace, kHost, kRestart, kStop };
const char* level_name(RecoveryLevel level);

enum class RunAction : uint8_t {
  kNote,        // the ledger only: the run absorbs it
  kReplace,     // that rank is started again, beside the others if they wait for it
  kRestartAll,  // all ranks are started again
  kMove,        // the host is left out: its ranks start on a spare, or the run goes on with fewer
  kStop,
};
const char* action_name(RunAction action);

constexpr int kPerSetting = -1;  // supervise.restarts

struct PolicyRow {
  RunFault fault;
  const char* name;      // in ledger and log
  const char* evidence;  // how it is known
  RunAction first, then;
  int per_hour;      // times that is done; one more stops the run (or, of a note, is not written)
  bool waits_first;  // backoff from the first time on
  int exit_code;     // if the run stops for it and the rank has none that says more
};

std::span<const PolicyRow> policy_table();
const PolicyRow& policy_row(RunFault fault);
inline const char* fault_name(RunFault fault) { return policy_row(fault).name; }

std::string explain_policy();  // a Markdown table

}  // namespace moraine
