// Chaos: a run under a supervisor, real faults on top, and the question whether anything of them is in the answer.
//
//   quiet    the run alone, for its hash
//   storm    the same under `moraine supervise`, with faults by a plan (fault_plan.h) until none is left
//   table    what was done, which level absorbed it, seconds lost; the two hashes
//
// With links the hosts are network namespaces of this machine, which needs root; ranks have no copies in memory then,
// for both hosts would keep them in one place.
//
// Errors:  kIo if a process cannot be started; kInvalidArgument if the quiet run does not end well, or if links are
//          wanted and cannot be had; kPeerLost if the storm ended without a result.
// Threads: one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "chaos/chaos_table.h"

namespace moraine {

struct ChaosOptions {
  std::string program;                 // moraine
  std::vector<std::string> train;      // --config FILE --set ...: of both runs
  std::vector<std::string> quiet;      // arguments of the quiet one alone
  std::vector<std::string> supervise;  // --set ... of the supervised one alone
  std::string out;                     // quiet/ and storm/ are made in it
  std::string quiet_hash;              // known already; empty: the quiet run is made
  std::string memory_base = "/dev/shm";
  int links = 0;  // above 0: ranks on two hosts (network namespaces), joined by so many
  FaultPlanOptions plan;
  std::function<void(const std::string& line)> tell;  // what goes on
};

struct ChaosResult {
  std::vector<InjectedFault> faults;
  std::vector<ChaosRow> rows;
  std::string quiet_hash, storm_hash;
  double storm_seconds = 0, lost_seconds = 0;
  bool has_tested() const;  // a fault was done: two hashes that are equal say something
};

ChaosResult run_chaos(FileSystem& fs, const ChaosOptions& options);

}  // namespace moraine
