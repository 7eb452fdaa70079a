// RunEffect: what the supervisor wants done, as data.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "base/log.h"
#include "supervisor/ledger.h"

namespace moraine {

// Now: what shall start later is given out when its time has come.
struct StartRank {
  int rank;
  int host;
  int start;  // how many times before
};
struct SignalRank {
  int rank;
  int64_t pid;
  int signal;
};
struct WriteLedger {
  LedgerEntry entry;
};
// For a person, by whatever way there is.
struct RaiseAlert {
  RunFault fault;
  std::string text;
};
struct WriteLog {
  Level level;
  std::string name, fields;
};
struct FinishRun {
  int exit_code;
  std::string reason;
};

using RunEffect = std::variant<StartRank, SignalRank, WriteLedger, RaiseAlert, WriteLog, FinishRun>;

}  // namespace moraine
