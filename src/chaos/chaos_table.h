// ChaosTable: what was done to a run, and which level of its defences absorbed it.
//
// An incident of the ledger belongs to the last fault before it began that could have caused it: one of the same rank,
// or of the supervisor or a machine as a whole; what is said of links, only by faults of links. Faults without an
// incident were absorbed by the run itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "chaos/fault_plan.h"
#include "supervisor/ledger.h"

namespace moraine {

struct InjectedFault {
  PlannedFault planned;
  double unix_time = 0;
  bool was_done = false;  // else there was nothing to do it to
  std::string note;       // what exactly, or why not
};

struct ChaosRow {
  ChaosFault fault = ChaosFault::kKill;
  int64_t planned = 0, done = 0;
  std::vector<std::pair<std::string, int64_t>>
      levels;                                 // absorbed at, how often; "run": no incident
  double seconds_lost = 0, seconds_most = 0;  // sum, of the worst
};

std::vector<ChaosRow> chaos_rows(const std::vector<InjectedFault>& faults,
                                 const std::vector<LedgerEntry>& ledger);
std::string chaos_table_text(const std::vector<ChaosRow>& rows);

}  // namespace moraine
