// Ledger: what happened to a run, one JSON object on a line for each incident that is over (ledger.jsonl).
//
// A line is one write and one sync; a line that was cut is left out when reading. Of two lines with one id the
// later counts: a supervisor that dies between the ledger and its own state writes an incident twice.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "supervisor/policy.h"

namespace moraine {

struct LedgerPhase {
  // detection, decision, respawn, meeting, loading, first_step; `without`: what is left when the incident was over
  // before the new process had done all of them.
  std::string name;
  double seconds = 0;
};

struct LedgerEntry {
  int64_t id = 0;
  RunFault fault = RunFault::kCrash;
  int rank = -1;  // -1: none
  std::string host;
  std::vector<std::string> evidence;
  std::string decision;
  RecoveryLevel level = RecoveryLevel::kStep;  // that absorbed it
  int64_t step = 0;                            // highest of the run when it happened
  double begin = 0, end = 0;                   // seconds, of the supervisor's clock
  double begin_unix = 0, end_unix = 0;         // set when it is written
  double seconds_lost = 0;  // until the run was beyond `step`, less what another incident counts
  std::vector<LedgerPhase> phases;
};

std::string ledger_line(const LedgerEntry& entry);  // ends with a line end
// `unix_minus_now`: what to add to the supervisor's clock for seconds since 1970.
void append_to_ledger(FileSystem& fs, const std::string& path, LedgerEntry entry,
                      double unix_minus_now);
// Lines that are no JSON, which a crash has cut, are left out. Errors: kCorrupt: JSON that is no entry.
std::vector<LedgerEntry> read_ledger(std::string_view text, const std::string& name);

std::string utc_of(double unix_seconds);  // 2026-01-02T03:04:05.678Z

}  // namespace moraine
