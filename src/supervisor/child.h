// Child: what a process that this one has forked does before it becomes another program.
#pragma once

#include <string>
#include <vector>

namespace moraine {

// The descriptor becomes number `target`; nothing if it is none.
void move_to(int fd, int target);
// What the supervisor has changed for itself goes back.
void restore_signals();
// Does not return. If there is no such program, errno goes to `failure_fd`.
[[noreturn]] void become(const std::vector<std::string>& words, int failure_fd);

}  // namespace moraine
