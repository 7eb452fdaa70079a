// A table of fixed size, read by the handler without a lock: an entry counts while its begin is set.
#include "base/mapped_ranges.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace moraine {
namespace {

constexpr size_t kRanges = 65536;  // what the kernel allows a process (vm.max_map_count)

struct Range {
  std::atomic<const char*> begin{nullptr};  // null: free
  std::atomic<int64_t> bytes{0};
  std::atomic<char*> path{nullptr};  // owned; kept while the handler might read it
};

Range ranges[kRanges];
std::atomic<size_t> used{0};  // entries that ever were set are below

// What a signal handler may do: write, stat, _exit.
void write_text(const char* text) {
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text, std::strlen(text));
}

void write_number(int64_t value) {
  char digits[24];
  char* at = digits + sizeof digits - 1;
  *at = '\0';
  do *--at = static_cast<char>('0' + value % 10);
  while ((value /= 10) > 0);
  write_text(at);
}

[[noreturn]] void end_with_message(const char* path, int64_t offset) {
  struct stat s {};
  const bool cut = ::stat(path, &s) == 0 && s.st_size <= offset;
  write_text("moraine: read ");
  write_text(path);
  write_text(": byte ");
  write_number(offset);
  write_text(
      cut ? " is gone: the file was cut while it was in use; wanted it unchanged, restore it\n"
          : " can not be read: the disk, or the network to it, failed; look at the disk\n");
  ::_exit(exit_code(cut ? Code::kCorrupt : Code::kIo));
}

extern "C" void on_lost_page(int signal, siginfo_t* info, void*) {
  const char* const at = static_cast<const char*>(info->si_addr);
  const size_t end = used.load();
  for (size_t i = 0; i < end; ++i) {
    const char* const begin = ranges[i].begin.load();
    const int64_t bytes = ranges[i].bytes.load();
    const char* const path = ranges[i].path.load();
    if (begin == nullptr || path == nullptr || at < begin || at >= begin + bytes) continue;
    end_with_message(path, at - begin);
  }
  ::signal(signal, SIG_DFL);  // the load is tried again, and ends the process as it would have
}

}  // namespace

void add_mapped_range(const void* data, int64_t bytes, const std::string& path) {
  for (size_t i = 0; i < kRanges; ++i) {
    const char* free = nullptr;
    // `begin` is the claim; the handler believes an entry once bytes and path are there too.
    if (ranges[i].begin.load(std::memory_order_relaxed) != nullptr ||
        !ranges[i].begin.compare_exchange_strong(free, static_cast<const char*>(data))) {
      continue;
    }
    char* const text = static_cast<char*>(std::malloc(path.size() + 1));
    if (text != nullptr) std::memcpy(text, path.c_str(), path.size() + 1);
    std::free(ranges[i].path.exchange(text));
    ranges[i].bytes.store(bytes);
    size_t below = used.load();
    while (below < i + 1 && !used.compare_exchange_weak(below, i + 1)) {
    }
    return;
  }
}

void remove_mapped_range(const void* data) {
  const size_t end = used.load();
  for (size_t i = 0; i < end; ++i) {
    if (ranges[i].begin.load() != static_cast<const char*>(data)) continue;
    ranges[i].bytes.store(0);
    ranges[i].begin.store(nullptr);
    return;
  }
}

void name_lost_mappings() {
  struct sigaction action {};
  action.sa_sigaction = on_lost_page;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace moraine
