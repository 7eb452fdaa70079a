// SegmentMemory: an anonymous file in memory, of a size that nobody can change.
#include "comm/window/segment_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace moraine {
namespace {

// The pages are taken now: a full host is an Error here, not a SIGBUS in the middle of a step.
int make_file(int64_t bytes) {
  const int fd = memfd_create("moraine segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) throw_error(Code::kIo, "make a segment: no memory file: {}", std::strerror(errno));
  int error = ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  if (error == 0) error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  if (error == 0) {
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    return fd;
  }
  ::close(fd);
  throw_error(Code::kIo, "make a segment of {} bytes: {}; wanted as much free memory", bytes,
              std::strerror(error));
}

}  // namespace

// Owns the descriptor, also if mapping fails.
SegmentMemory::SegmentMemory(int descriptor, int64_t bytes) : descriptor_(descriptor) {
  if (bytes == 0) return;
  void* memory =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    close_descriptor();
    throw_error(Code::kIo, "map a segment of {} bytes: {}", bytes, std::strerror(error));
  }
  data_ = static_cast<std::byte*>(memory);
  size_ = static_cast<size_t>(bytes);
}

SegmentMemory::~SegmentMemory() {
  if (data_ != nullptr) munmap(data_, size_);
  close_descriptor();
}

void SegmentMemory::close_descriptor() {
  const int fd = std::exchange(descriptor_, -1);
  if (fd >= 0) ::close(fd);
}

std::shared_ptr<SegmentMemory> SegmentMemory::make(int64_t bytes) {
  const int fd = bytes == 0 ? -1 : make_file(bytes);
  return std::shared_ptr<SegmentMemory>(new SegmentMemory(fd, bytes));
}

std::shared_ptr<SegmentMemory> SegmentMemory::open(pid_t maker, int descriptor, int64_t bytes) {
  if (bytes == 0) return make(0);
  const std::string path = fmt::format("/proc/{}/fd/{}", maker, descriptor);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0)
    throw_error(Code::kIo, "open a segment of process {} ({}): {}", maker, path,
                std::strerror(errno));
  std::shared_ptr<SegmentMemory> memory(new SegmentMemory(fd, bytes));
  memory->close_descriptor();
  return memory;
}

}  // namespace moraine
