// HostRegion: maps the region and lays it out: head, rank records, rings.
#include "comm/host_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/error.h"

namespace moraine {
namespace {

size_t records_offset() { return sizeof(RegionHead); }
size_t rings_offset(int ranks) {
  return records_offset() + static_cast<size_t>(ranks) * sizeof(RankRecord);
}
size_t region_bytes(int ranks) {
  const size_t pairs = static_cast<size_t>(ranks) * static_cast<size_t>(ranks);
  return rings_offset(ranks) + pairs * kMaxChannels * sizeof(Ring);
}

// Sparse: a ring that is never used costs address space only.
std::byte* map(int fd, size_t bytes) {
  const int flags = MAP_SHARED | MAP_NORESERVE | (fd < 0 ? MAP_ANONYMOUS : 0);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED)
    throw_error(Code::kIo, "map {} bytes of memory shared by ranks: {}", bytes,
                std::strerror(errno));
  return static_cast<std::byte*>(memory);
}

std::byte* map_named(const std::string& name, int flags, size_t bytes) {
  const int fd = shm_open(name.c_str(), flags, 0600);
  if (fd < 0) throw_error(Code::kIo, "open shared memory {}: {}", name, std::strerror(errno));
  const bool makes = (flags & O_CREAT) != 0;
  try {
    if (makes && ftruncate(fd, static_cast<off_t>(bytes)) != 0)
      throw_error(Code::kIo, "make shared memory {} of {} bytes: {}", name, bytes,
                  std::strerror(errno));
    std::byte* memory = map(fd, bytes);
    close(fd);
    return memory;
  } catch (const Error&) {
    close(fd);
    if (makes) shm_unlink(name.c_str());  // nobody has the region who would
    throw;
  }
}

}  // namespace

std::shared_ptr<HostRegion> HostRegion::make_private(int ranks) {
  const size_t bytes = region_bytes(ranks);
  std::shared_ptr<HostRegion> region(new HostRegion(ranks, map(-1, bytes), bytes));
  region->make_mutexes();
  return region;
}

std::shared_ptr<HostRegion> HostRegion::make_named(int ranks, const std::string& name) {
  const size_t bytes = region_bytes(ranks);
  std::shared_ptr<HostRegion> region(
      new HostRegion(ranks, map_named(name, O_CREAT | O_EXCL | O_RDWR, bytes), bytes));
  region->make_mutexes();
  return region;
}

std::shared_ptr<HostRegion> HostRegion::open_named(int ranks, const std::string& name) {
  const size_t bytes = region_bytes(ranks);
  return std::shared_ptr<HostRegion>(new HostRegion(ranks, map_named(name, O_RDWR, bytes), bytes));
}

void HostRegion::forget_name(const std::string& name) { shm_unlink(name.c_str()); }

HostRegion::~HostRegion() { munmap(memory_, bytes_); }

void HostRegion::make_mutexes() {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  for (int r = 0; r < ranks_; ++r) MR_CHECK(pthread_mutex_init(&rank(r).alive, &attributes) == 0);
  pthread_mutexattr_destroy(&attributes);
}

RankRecord& HostRegion::rank(int r) const {
  MR_DCHECK(r >= 0 && r < ranks_);
  return reinterpret_cast<RankRecord*>(memory_ + records_offset())[r];
}

Ring& HostRegion::ring(int from, int to, int channel) const {
  MR_DCHECK(from >= 0 && from < ranks_ && to >= 0 && to < ranks_);
  const int64_t index = (int64_t{from} * ranks_ + to) * kMaxChannels + channel;
  return reinterpret_cast<Ring*>(memory_ + rings_offset(ranks_))[index];
}

uint64_t HostRegion::offer(std::shared_ptr<void> object) {
  const std::lock_guard lock(offers_mutex_);
  std::erase_if(offers_, [](const auto& o) { return o.second.expired(); });
  offers_[++last_offer_] = object;
  return last_offer_;
}

std::shared_ptr<void> HostRegion::take_offer(uint64_t number) {
  const std::lock_guard lock(offers_mutex_);
  const auto found = offers_.find(number);
  return found == offers_.end() ? nullptr : found->second.lock();
}

}  // namespace moraine
