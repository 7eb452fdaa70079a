// ProcessStat: what the kernel says of a process (/proc/<pid>/stat).
//
// A pid is reused: together with its start it is one process.
#pragma once

#include <cstdint>
#include <optional>

namespace moraine {

struct ProcessStat {
  char state =
      0;  // R runs, S sleeps, D waits for a device, T is stopped, t is traced, Z and X are dead
  int64_t start = 0;  // in clock ticks since boot
};
std::optional<ProcessStat> read_process_stat(int64_t pid);  // none: there is no such process

// How often its first thread gave up its core; -1: the kernel does not show it. One that was let go on and stopped
// again has a higher number.
int64_t process_switches(int64_t pid);

// When a process was started; -1: it is not there, or only its exit code is (a zombie).
int64_t process_start(int64_t pid);

}  // namespace moraine
