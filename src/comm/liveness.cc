// Liveness: robust mutexes tell who has died, /proc/<pid>/stat tells who is stopped.
#include "comm/liveness.h"

#include <unistd.h>

#include <cerrno>
#include <optional>

#include "base/check.h"
#include "base/process_stat.h"

namespace moraine {

void join_alive(RankRecord& rank) {
  MR_CHECK(pthread_mutex_lock(&rank.alive) == 0);
  rank.pid.store(getpid(), std::memory_order_relaxed);
}

void leave_alive(RankRecord& rank) { pthread_mutex_unlock(&rank.alive); }

bool has_died(RankRecord& rank) {
  const RankState state = rank.state.load(std::memory_order_acquire);
  if (state != RankState::kHere) return state == RankState::kDied;
  const int result = pthread_mutex_trylock(&rank.alive);
  if (result == EBUSY) return false;
  if (result == EOWNERDEAD) pthread_mutex_consistent(&rank.alive);
  // Free: it died (here or found by another waiter), or it has just left in order.
  RankState expected = RankState::kHere;
  rank.state.compare_exchange_strong(expected, RankState::kDied, std::memory_order_acq_rel);
  if (result == 0 || result == EOWNERDEAD) pthread_mutex_unlock(&rank.alive);
  return rank.state.load(std::memory_order_acquire) == RankState::kDied;
}

std::string process_state(pid_t pid) {
  const std::optional<ProcessStat> stat = read_process_stat(pid);
  if (!stat) return "has died";
  switch (stat->state) {
    case 'R':
      return "is running";
    case 'S':
      return "is alive, asleep";
    case 'D':
      return "is waiting for a device";
    case 'T':
      return "is stopped (SIGSTOP)";
    case 't':
      return "is stopped by a debugger";
    case 'Z':
    case 'X':
      return "has died";
    default:
      return "is in an unknown state";
  }
}

}  // namespace moraine
