// Descriptors are looked at with one call that changes nothing.
#include "base/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/mapped_ranges.h"

namespace moraine {

void prepare_process() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // open() takes the lowest free number, which is fd. Standard output can be read only: results
    // that go nowhere are an error, a log that goes nowhere is not.
    if (::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd) _exit(13);
  }
  ::signal(SIGXFSZ, SIG_IGN);
  name_lost_mappings();
  // A dataset has a file open for each shard.
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
}

std::string own_program() {
  char* path = ::realpath("/proc/self/exe", nullptr);
  if (path == nullptr)
    throw_error(Code::kIo, "look up the path of this program: {}", std::strerror(errno));
  const std::string own = path;
  std::free(path);
  return own;
}

}  // namespace moraine
