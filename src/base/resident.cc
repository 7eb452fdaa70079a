// Resident: reads getrusage, /proc/meminfo and the limits of a version 2 control group.
#include "base/resident.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace moraine {

int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

// The number in a file of one number; kUnknown if it holds none ("max") or is not there.
int64_t number_in(const char* path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : kUnknown;
}

int64_t machine_available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  int64_t kib = 0;
  while (file >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    std::getline(file, unit);
  }
  return kUnknown;
}

}  // namespace

int64_t available_memory_bytes() {
  const int64_t limit = number_in("/sys/fs/cgroup/memory.max");
  const int64_t used = number_in("/sys/fs/cgroup/memory.current");
  const bool limited = limit != kUnknown && used != kUnknown;
  return std::min(machine_available_bytes(),
                  limited ? std::max<int64_t>(0, limit - used) : kUnknown);
}

}  // namespace moraine
