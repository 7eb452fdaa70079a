// TestStopped: processes of a test that are all stopped (Ctrl-Z), for longer than their deadline, while one waits for
// what is about to come.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <new>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/clock.h"

namespace moraine {

// Nobody who has only this to do is slow for so long.
constexpr double kStoppedDeadline = 2;

// In memory of the test and of its processes.
struct StopBoard {
  std::atomic<int> waiting{0};  // how many are about to wait with kStoppedDeadline
  std::atomic<bool> go{false};  // what they wait for may come
  char text[2000] = {};         // of an exception that ended one

  void await_go() const {
    while (!go) usleep(1000);
  }
};

namespace testing {

inline int run_stoppable(StopBoard& board, const std::function<void(StopBoard&)>& body) {
  try {
    body(board);
    return 0;
  } catch (const std::exception& e) {
    std::strncpy(board.text, e.what(), sizeof board.text - 1);
    return 1;
  }
}

inline void sleep_for_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

inline void stop_and_go_on(StopBoard& board, const std::vector<pid_t>& pids, int waiting) {
  constexpr double kPatience = 60, kShort = 0.1;  // long enough for a wait to be under way
  const double end = now_seconds() + kPatience;
  while (board.waiting < waiting && now_seconds() < end) sleep_for_seconds(1e-3);
  ASSERT_EQ(board.waiting, waiting) << board.text;
  sleep_for_seconds(kShort);
  for (const pid_t pid : pids) kill(pid, SIGSTOP);
  sleep_for_seconds(kStoppedDeadline + kShort);
  kill(pids[0], SIGCONT);  // looks once more in vain
  sleep_for_seconds(kShort);
  board.go = true;
  for (const pid_t pid : pids) kill(pid, SIGCONT);
}

// Each in a process. Once `waiting` have said on the board that they wait, the first among them, all are stopped, go on
// and must end well.
inline void expect_to_go_on_when_stopped(
    const std::vector<std::function<void(StopBoard& board)>>& bodies, int waiting = 1) {
  void* memory =
      mmap(nullptr, sizeof(StopBoard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  MR_CHECK(memory != MAP_FAILED);
  StopBoard& board = *new (memory) StopBoard;
  std::vector<pid_t> pids;
  for (const auto& body : bodies) {
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // whatever becomes of the test
      if (getppid() != parent) _exit(1);
      _exit(run_stoppable(board, body));
    }
    pids.push_back(pid);
  }
  stop_and_go_on(board, pids, waiting);
  for (const pid_t pid : pids) {
    if (!board.go) kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0) << board.text;
  }
  munmap(memory, sizeof(StopBoard));
}

}  // namespace testing

}  // namespace moraine
