// Child: descriptors, signals, exec.
#include "supervisor/child.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>

namespace moraine {

void move_to(int fd, int target) {
  if (fd < 0) return;
  ::dup2(fd, target);
  if (fd > 2) ::close(fd);
}

void restore_signals() {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGPIPE, SIGXFSZ, SIGTERM, SIGINT, SIGHUP}) ::signal(signal, SIG_DFL);
}

void become(const std::vector<std::string>& words, int failure_fd) {
  std::vector<std::string> copies = words;
  std::vector<char*> argv;
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  const int error = errno;
  if (::write(failure_fd, &error, sizeof error) < 0) errno = 0;
  ::_exit(127);
}

}  // namespace moraine
