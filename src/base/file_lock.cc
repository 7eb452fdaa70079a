// The owner removes the file while it holds the lock, so whoever has locked a file looks whether it
// is still the one of that name.
#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/file_system.h"
#include "base/printable.h"

namespace moraine {
namespace {

std::string owner_text() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return fmt::format("process {} on {}", ::getpid(), host);
}

std::string read_owner(int fd) {
  char text[512];
  const ssize_t n = ::pread(fd, text, sizeof text, 0);
  return n > 0 ? printable(std::string_view(text, static_cast<size_t>(n))) : "another process";
}

bool is_at(int fd, const std::string& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

}  // namespace

std::unique_ptr<FileLock> FileLock::take(const std::string& folder, const std::string& doing) {
  const std::string path = join_path(folder, kLockName);
  while (true) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) throw_error(Code::kIo, "{}: open {}: {}", doing, path, std::strerror(errno));
    std::unique_ptr<FileLock> lock(new FileLock(fd));
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      const int reason = errno;
      if (reason == EOPNOTSUPP || reason == ENOLCK || reason == ENOSYS) return lock;
      const std::string owner = read_owner(fd);
      if (reason == EWOULDBLOCK) {
        throw_error(Code::kInvalidArgument,
                    "{}: {} works in it already (it holds {}); wait until it has ended, or choose "
                    "another folder",
                    doing, owner, path);
      }
      throw_error(Code::kIo, "{}: lock {}: {}", doing, path, std::strerror(reason));
    }
    if (!is_at(fd, path)) continue;  // removed by the owner before
    lock->path_ = path;
    const std::string owner = owner_text();
    // Only for messages: a full disk does not matter.
    if (::ftruncate(fd, 0) == 0 && ::pwrite(fd, owner.data(), owner.size(), 0) < 0) errno = 0;
    return lock;
  }
}

FileLock::~FileLock() {
  if (!path_.empty()) ::unlink(path_.c_str());
  ::close(fd_);
}

}  // namespace moraine
