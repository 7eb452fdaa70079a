// ChildProcess: fork, descriptors, exec.
#include "base/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace moraine {

ChildProcess::ChildProcess(const std::vector<std::string>& words, const std::string& log) {
  // All that allocates is done before the fork: other threads may hold the allocator's lock.
  std::vector<std::string> copies = words;
  std::vector<char*> argv;
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string out = log + ".out", err = log + ".err";
  pid_ = fork();
  if (pid_ < 0) throw_error(Code::kIo, "start {}: {}", words[0], std::strerror(errno));
  if (pid_ != 0) return;
  constexpr int kAppend = O_CREAT | O_APPEND | O_WRONLY;
  dup2(::open(out.c_str(), kAppend, 0644), STDOUT_FILENO);
  dup2(::open(err.c_str(), kAppend, 0644), STDERR_FILENO);
  execv(argv[0], argv.data());
  _exit(127);
}

ChildProcess::~ChildProcess() {
  kill(SIGTERM);
  if (pid_ > 0) take(0);
}

void ChildProcess::kill(int signal) const {
  if (pid_ > 0) ::kill(pid_, signal);
}

bool ChildProcess::has_ended() { return pid_ <= 0 || take(WNOHANG); }

int ChildProcess::wait() {
  if (pid_ > 0) take(0);
  return code_;
}

bool ChildProcess::take(int flags) {
  int status = 0;
  pid_t taken;
  do {
    taken = waitpid(pid_, &status, flags);
  } while (taken < 0 && errno == EINTR);
  if (taken != pid_) return false;
  code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  pid_ = -1;
  return true;
}

}  // namespace moraine
