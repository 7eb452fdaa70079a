// ProcessRanks: ranks as processes of this host, forked from here; for tests and measurements.
//
// Call it before this process has threads. A child runs body and ends; nothing of the parent's is
// run at its exit. When every rank that still runs is stopped (SIGSTOP), these are killed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/transport.h"

namespace moraine {

struct RankOutcome {
  int exit_code = -1;  // 0, or that of the Error; -1: ended by a signal
  int signal = 0;
  std::string text;  // what body returned, or the Error's message
};

// Calls body(transport) in one process per rank; waits for all. Errors of ranks are outcomes.
std::vector<RankOutcome> run_process_ranks(
    int ranks, const std::function<std::string(Transport& transport)>& body);

}  // namespace moraine
