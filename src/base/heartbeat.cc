// Heartbeat: maps the page that the environment names, or a private one.
#include "base/heartbeat.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/clock.h"
#include "base/error.h"
#include "base/process_stat.h"

namespace moraine {
namespace {

constexpr size_t kPageBytes = 4096;

thread_local bool speaks_for_process = false;

HeartbeatPage* map_page(int fd, const std::string& path) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* memory = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED)
    throw_error(Code::kIo, "map the heartbeat {}: {}", path, std::strerror(errno));
  return static_cast<HeartbeatPage*>(memory);
}

// Of a file that is made, its place on the disk as well: a store into a hole of a full disk is a bus error.
// -1: there is no such file.
int open_file(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | flags, 0600);
  if (fd < 0 && errno == ENOENT && (flags & O_CREAT) == 0) return -1;
  if (fd < 0) throw_error(Code::kIo, "open the heartbeat {}: {}", path, std::strerror(errno));
  const off_t bytes = lseek(fd, 0, SEEK_END);
  const int error = (flags & O_CREAT) != 0 ? posix_fallocate(fd, 0, kPageBytes) : 0;
  if (error == 0 && ((flags & O_CREAT) != 0 || bytes == static_cast<off_t>(kPageBytes))) return fd;
  close(fd);
  throw_error(Code::kIo, "open the heartbeat {}: {} bytes, wanted {}{}{}", path, bytes, kPageBytes,
              error == 0 ? "" : ": ", error == 0 ? "" : std::strerror(error));
}

HeartbeatPage* map_file(const std::string& path) {
  const int fd = open_file(path, 0);
  HeartbeatPage* page = fd < 0 ? nullptr : map_page(fd, path);
  if (fd >= 0) close(fd);
  return page;
}

void mark_first(std::atomic<double>& moment) {
  if (moment.load(std::memory_order_relaxed) == 0)
    moment.store(now_seconds(), std::memory_order_relaxed);
}

void mark_moment(HeartbeatPage& page, Activity activity) {
  const bool opens = activity == Activity::kStarting && page.met_at != 0;
  if (activity == Activity::kMeeting) mark_first(page.met_at);
  if (activity == Activity::kLoading || opens) mark_first(page.loaded_at);
  if (activity == Activity::kComputing) mark_first(page.computed_at);
}

const char* page_name() {
  const char* const path = std::getenv(kHeartbeatVariable);
  return path == nullptr ? "" : path;
}

HeartbeatPage* own_page() {
  const char* const path = page_name();
  HeartbeatPage* page = *path != '\0' ? map_file(path) : map_page(-1, "");
  if (page == nullptr)
    throw_error(Code::kIo,
                "{}={}: there is no such file; wanted the one that the watcher has made, or the "
                "variable unset",
                kHeartbeatVariable, path);
  page->waits_for = -1;
  page->pid = getpid();
  page->process_start = process_start(getpid());
  page->magic = HeartbeatPage::kMagic;
  return page;
}

}  // namespace

const char* activity_name(Activity activity) {
  switch (activity) {
    case Activity::kStarting:
      return "starting";
    case Activity::kMeeting:
      return "meeting";
    case Activity::kLoading:
      return "loading";
    case Activity::kComputing:
      return "computing";
    case Activity::kWaiting:
      return "waiting";
    case Activity::kStoring:
      return "storing";
    case Activity::kObserving:
      return "observing";
    case Activity::kEnding:
      return "ending";
  }
  return "unknown";
}

namespace {

std::atomic<HeartbeatPage*> heard = nullptr;  // the page of this process, once there is one
std::mutex making;

// A child has not spoken yet, and its parent's page is not its own.
void forget_page() { heard.store(nullptr, std::memory_order_relaxed); }

HeartbeatPage& make_own_page() {
  static const int told = pthread_atfork(nullptr, nullptr, forget_page);
  if (told != 0) throw_error(Code::kIo, "prepare the heartbeat for forks: {}", std::strerror(told));
  const std::lock_guard lock(making);
  HeartbeatPage* page = heard.load(std::memory_order_relaxed);
  if (page == nullptr) heard.store(page = own_page(), std::memory_order_release);
  return *page;
}

}  // namespace

bool is_watched() { return *page_name() != '\0'; }

HeartbeatPage& heartbeat() {
  HeartbeatPage* const page = heard.load(std::memory_order_acquire);
  return page != nullptr ? *page : make_own_page();
}

void beat_if_heard() {
  if (HeartbeatPage* const page = heard.load(std::memory_order_acquire))
    page->beats.fetch_add(1, std::memory_order_relaxed);
}

void set_activity(Activity activity, int32_t waits_for) {
  speaks_for_process = true;
  mark_moment(heartbeat(), activity);
  heartbeat().waits_for.store(waits_for, std::memory_order_relaxed);
  heartbeat().activity.store(activity, std::memory_order_relaxed);
  beat();
}

void say_ended(int exit_code) {
  try {
    heartbeat().ended.store(1 + exit_code, std::memory_order_release);
  } catch (const Error&) {
    return;  // the command has ended with that Error
  }
}

WaitsFor::WaitsFor(int32_t rank)
    : speaks_(speaks_for_process), before_(heartbeat().activity.load(std::memory_order_relaxed)) {
  if (speaks_) set_activity(Activity::kWaiting, rank);
}

WaitsFor::~WaitsFor() {
  if (speaks_) set_activity(before_);
}

std::unique_ptr<HeartbeatFile> HeartbeatFile::make(const std::string& path) {
  unlink(path.c_str());  // a process that still has the old page keeps it to itself
  return std::unique_ptr<HeartbeatFile>(new HeartbeatFile(open_file(path, O_CREAT | O_EXCL)));
}

std::unique_ptr<HeartbeatFile> HeartbeatFile::open(const std::string& path) {
  const int fd = open_file(path, 0);
  return fd < 0 ? nullptr : std::unique_ptr<HeartbeatFile>(new HeartbeatFile(fd));
}

HeartbeatFile::~HeartbeatFile() { close(fd_); }

const HeartbeatPage& HeartbeatFile::page() const {
  static_assert(sizeof seen_ == kPageBytes);
  if (pread(fd_, seen_, sizeof seen_, 0) != static_cast<ssize_t>(sizeof seen_))
    std::memset(seen_, 0, sizeof seen_);
  return *reinterpret_cast<const HeartbeatPage*>(seen_);
}

uint64_t HeartbeatFile::exchange_flip(uint64_t asked) {
  HeartbeatPage* const mapped = map_page(fd_, "to ask for a flip");
  const uint64_t before = mapped->asked_flip.exchange(asked);
  munmap(mapped, kPageBytes);
  return before;
}

bool HeartbeatFile::is_alive() const {
  const HeartbeatPage& seen = page();
  const int64_t start = seen.process_start;
  return seen.magic == HeartbeatPage::kMagic && start > 0 && process_start(seen.pid) == start;
}

}  // namespace moraine
