// ReadBeginning: reads on until there is enough.
#include "base/read_beginning.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace moraine {

std::string read_beginning(const std::string& path, int64_t bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    throw_error(errno == ENOENT ? Code::kNotFound : Code::kIo, "open {}: {}", path,
                std::strerror(errno));
  std::string content(static_cast<size_t>(bytes), '\0');
  size_t size = 0;
  ssize_t n = 1;
  while (size < content.size() && n != 0) {
    n = ::read(fd, content.data() + size, content.size() - size);
    if (n < 0 && errno != EINTR) break;
    if (n > 0) size += static_cast<size_t>(n);
  }
  const int error = n < 0 ? errno : 0;
  ::close(fd);
  if (error != 0) throw_error(Code::kIo, "read {}: {}", path, std::strerror(error));
  content.resize(size);
  return content;
}

}  // namespace moraine
