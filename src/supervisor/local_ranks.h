// LocalRanks: the processes of a run on this machine: started, found again, signalled, watched.
//
// A process gets a session of its own, /dev/null to read, FOLDER/rank-<r>.log as stderr, rank-<r>.out as stdout, and
// the page FOLDER/rank-<r>.beat by MORAINE_HEARTBEAT. It writes who it is to rank-<r>.pid before it becomes its
// program, so a later supervisor finds it however this one ended; nothing here ends with the supervisor.
//
// How a process ended is known of children; of one that was found again only if it says so in its page.
//
// Errors:  kIo where the folder cannot be written.
// Threads: one. Others of the caller (the webhook's) hold no lock that a child could need but those of the C library,
//          which fork() keeps whole.
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/heartbeat.h"
#include "supervisor/run_event.h"

namespace moraine {

class LocalRanks {
 public:
  LocalRanks(std::string folder, int ranks);
  ~LocalRanks();
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  // `start` counts the starts of this rank. RankStarted or RankStartFailed.
  RunEvent start(int rank, const std::vector<std::string>& words, int64_t start);
  // The process that a former supervisor has started. RankStarted, or how it ended.
  RunEvent find(int rank, int64_t start);
  // Ends the process that a former supervisor has started, if there is one still, and all that it has started.
  void kill_former(int rank);
  // SIGKILL goes to all that the process has started too.
  void signal(int rank, int signal);

  void add_descriptors(std::vector<pollfd>* polled) const;  // readable once a process has ended
  std::vector<RankEnded> take_ended();
  bool read_beat(int rank,
                 BeatSnapshot* beat) const;  // false: it has no page, or has not written it

  std::string path(int rank, const char* suffix) const;

 private:
  struct Process {
    int64_t pid = 0;  // 0: none
    int64_t started = 0;
    int pidfd = -1;
    bool is_child = false;
    std::unique_ptr<HeartbeatFile> page;
  };

  void forget(Process& p);
  bool has_ended(const Process& p, RankEnded* ended) const;

  const std::string folder_;
  std::vector<Process> processes_;
};

bool is_process_stopped(int64_t pid);  // state T

}  // namespace moraine
