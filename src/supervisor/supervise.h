// Supervise: a run, on this machine or on several, from its first start to its end, whatever happens between.
//
// The loop around the Supervisor: it waits for processes, heartbeats, log lines and signals, hands them over as events
// and does what comes back. FOLDER has state.json (what a supervisor that was killed goes on from), ledger.jsonl, and
// for each rank what local_ranks.h says, in on-<host>/ if it is on another one. An alert is a line of the log.
//
// SIGTERM, SIGINT and SIGHUP once: ranks are told, and saved; more than a second later again: they are killed. SIGPIPE
// is ignored from here on: that nobody reads the log any more is no reason to leave a run alone.
//
// Errors: kInvalidArgument: another supervisor works in FOLDER; a run with other ranks is alive in it. kIo: FOLDER can
//         not be written at the start. Later errors of the disk are logged, and the run goes on.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "supervisor/options.h"

namespace moraine {

struct SupervisePlan {
  std::string folder;
  SuperviseOptions options;
  ShowOptions show;
  // The words of a rank's command. `rendezvous`: HOST:PORT where rank 0 is to listen.
  std::function<std::vector<std::string>(int rank, const std::string& rendezvous)> words;
  // What rank 0 writes, as it comes.
  std::function<void(std::string_view text)> on_out, on_log;
};

struct SuperviseResult {
  int exit_code = 0;
  std::string reason;
};

SuperviseResult supervise(FileSystem& fs, const SupervisePlan& plan);

}  // namespace moraine
