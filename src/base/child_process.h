// ChildProcess: a program that this one has started and waits for, with its output in files.
//
// Errors:  kIo if it cannot be started; a program that does not exist ends with code 127.
// Threads: one at a time.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace moraine {

class ChildProcess {
 public:
  // words[0] is a path. Output is appended to LOG.out, errors to LOG.err.
  ChildProcess(const std::vector<std::string>& words, const std::string& log);
  // Asks it to end (SIGTERM), and waits.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void kill(int signal) const;  // nothing once it has ended
  bool has_ended();
  int wait();  // its exit code, or 128 and the signal that ended it

 private:
  bool take(int flags);
  pid_t pid_ = -1;
  int code_ = 0;
};

}  // namespace moraine
