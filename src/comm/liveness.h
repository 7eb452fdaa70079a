// Liveness: whether the process of a rank still lives, and what it is doing instead of answering.
//
// Each rank's first thread holds a robust mutex in shared memory: when it ends without unlocking,
// the kernel marks the mutex before it takes the process apart, also of a zombie. A pid alone would
// say too little: it is reused, and a zombie has one.
#pragma once

#include <sys/types.h>

#include <string>

#include "comm/host_region.h"

namespace moraine {

// This thread holds the mutex from now on. Called by the thread that will call leave.
void join_alive(RankRecord& rank);
void leave_alive(RankRecord& rank);

// True if the rank joined and has died since; then its state is kDied for everybody.
bool has_died(RankRecord& rank);

// "is stopped (SIGSTOP or a debugger)", "has died", "is running", "is asleep", ...
std::string process_state(pid_t pid);

}  // namespace moraine
