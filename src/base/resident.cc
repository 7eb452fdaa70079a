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
int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : kUnknown;
}

// Of files, which the kernel drops when memory is asked for.
int64_t cached_in(const std::string& folder) {
  std::ifstream file(folder + "/memory.stat");
  std::string key;
  int64_t bytes = 0, sum = 0;
  while (file >> key >> bytes)
    if (key == "active_file" || key == "inactive_file") sum += bytes;
  return sum;
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

int64_t group_available_bytes(const std::string& folder) {
  const int64_t limit = number_in(folder + "/memory.max"),
                current = number_in(folder + "/memory.current");
  if (limit == kUnknown || current == kUnknown) return kUnknown;
  return std::max<int64_t>(0, limit - std::max<int64_t>(0, current - cached_in(folder)));
}

int64_t available_memory_bytes() {
  return std::min(machine_available_bytes(), group_available_bytes("/sys/fs/cgroup"));
}

}  // namespace moraine
