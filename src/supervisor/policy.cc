// The rows of the decision table.
#include "supervisor/policy.h"

#include <fmt/format.h>

#include <iterator>

#include "base/check.h"

namespace moraine {
namespace {

using enum RunAction;

constexpr int kLost = 15, kLate = 16;  // exit codes of a rank that is gone, of a deadline

constexpr PolicyRow kTable[] = {
    {RunFault::kCrash, "crash", "SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL: a bug of ours", kReplace,
     kRestartAll, kPerSetting, false, kLost},
    {RunFault::kKilled, "killed", "SIGKILL or another signal that we did not send; no exit code",
     kReplace, kRestartAll, kPerSetting, false, kLost},
    {RunFault::kOutOfMemory, "out_of_memory", "SIGKILL, and the kernel's `oom_kill` counter grew",
     kReplace, kRestartAll, 6, true, kLost},
    {RunFault::kHang, "hang",
     "beats and steps stand still longer than `hang_seconds` and `hang_factor` steps, and nobody "
     "waits for another rank; or `start_seconds` outside of steps",
     kReplace, kRestartAll, kPerSetting, false, kLate},
    {RunFault::kStopped, "stopped",
     "as a hang, and the process is stopped (state T, without a break for half of that time)",
     kReplace, kRestartAll, kPerSetting, false, kLate},
    {RunFault::kPeerLost, "peer_lost",
     "exit 15 or 16 and no rank is known to have caused it; else it belongs to that fault",
     kReplace, kRestartAll, kPerSetting, false, kLost},
    {RunFault::kDevice, "device", "exit 17", kMove, kStop, 4, false, 17},
    {RunFault::kCorrupt, "corrupt",
     "exit 12; a damaged checkpoint alone is none: the run takes the one before", kRestartAll,
     kStop, 2, false, 12},
    {RunFault::kDisk, "disk", "exit 13: full, failing, or no permission", kRestartAll, kRestartAll,
     60, true, 13},
    {RunFault::kDiverged, "diverged", "exit 14: the run's own `spike.policy` is at its end", kStop,
     kStop, 0, false, 14},
    {RunFault::kRankDiverged, "rank_diverged",
     "exit 20: the rank has other bits than it must have; again and again: its host is left out",
     kReplace, kMove, 4, false, 20},
    {RunFault::kInterrupted, "interrupted",
     "exit 18 that we did not ask for: a time limit, or a signal to a rank", kStop, kStop, 0, false,
     18},
    {RunFault::kInvalid, "invalid", "exit 10 or 11: a person must look", kStop, kStop, 0, false,
     10},
    {RunFault::kUsage, "usage", "exit 2", kStop, kStop, 0, false, 2},
    {RunFault::kFailed, "failed", "any other exit code", kReplace, kRestartAll, kPerSetting, false,
     kLost},
    {RunFault::kStartFailed, "start_failed", "a process could not be started", kReplace, kReplace,
     kPerSetting, true, 11},
    {RunFault::kHostLost, "host_lost", "its launcher or its heartbeat is gone", kMove, kStop, 8,
     false, kLost},
    {RunFault::kStraggler, "straggler",
     "computes `straggler_factor` times as long as the median rank, 16 steps in a row", kNote,
     kNote, 12, false, 0},
    {RunFault::kBadStep, "bad_step",
     "`step.bad`: loss or gradient norm is a spike or NaN; the run leaves the step out", kNote,
     kNote, 60, false, 0},
    {RunFault::kRollback, "rollback", "`run.rolled_back`: the run went back and skips data", kNote,
     kNote, 60, false, 0},
    {RunFault::kLinkLost, "link_lost", "`rails.lost`: the other paths carry its traffic", kNote,
     kNote, 60, false, 0},
    {RunFault::kPeerSilent, "peer_silent",
     "`rails.resumed`: all paths between two ranks were cut, what they were at was held, and went "
     "on",
     kNote, kNote, 60, false, 0},
    {RunFault::kSaveFailed, "save_failed", "`checkpoint.failed`: training goes on", kNote, kNote,
     60, false, 0},
    {RunFault::kMemoryLow, "memory_low",
     "less than 5 % available, or tasks wait for memory for a fifth of the time", kNote, kNote, 12,
     false, 0},
    {RunFault::kDiskLow, "disk_low", "less than `disk_low_mib` free in the run's folder", kNote,
     kNote, 12, false, 0},
    {RunFault::kEdacCorrected, "edac_corrected", "corrected memory errors counted", kNote, kNote,
     12, false, 0},
    {RunFault::kEdacUncorrected, "edac_uncorrected", "an uncorrected memory error", kMove, kNote, 2,
     false, 17},
    {RunFault::kNicErrors, "nic_errors", "the error counters of an interface grew", kNote, kNote,
     12, false, 0},
    {RunFault::kCarrierLost, "carrier_lost", "an interface lost its carrier", kNote, kNote, 60,
     false, 0},
    {RunFault::kHot, "hot", "a sensor is at its limit, or cores were slowed down for their heat",
     kNote, kNote, 12, false, 0},
};

std::string times_text(const PolicyRow& row) {
  if (row.first == kStop) return "-";
  return row.per_hour == kPerSetting ? "`restarts`" : fmt::format("{}", row.per_hour);
}

}  // namespace

const char* level_name(RecoveryLevel level) {
  constexpr const char* kNames[] = {"link", "operation", "step", "replace",
                                    "host", "restart",   "stop"};
  return kNames[static_cast<size_t>(level)];
}

const char* action_name(RunAction action) {
  constexpr const char* kNames[] = {"note", "replace", "restart all", "move", "stop"};
  return kNames[static_cast<size_t>(action)];
}

std::span<const PolicyRow> policy_table() { return kTable; }

const PolicyRow& policy_row(RunFault fault) {
  const auto index = static_cast<size_t>(fault);
  MR_CHECK(index < std::size(kTable) && kTable[index].fault == fault);
  return kTable[index];
}

std::string explain_policy() {
  std::string text =
      "| fault | how it is known | first | if that did not help | an hour | exit |\n"
      "|---|---|---|---|---|---|\n";
  for (const PolicyRow& row : kTable)
    text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", row.name, row.evidence,
                        action_name(row.first), action_name(row.then), times_text(row),
                        row.exit_code == 0 ? "-" : fmt::format("{}", row.exit_code));
  return text;
}

}  // namespace moraine
