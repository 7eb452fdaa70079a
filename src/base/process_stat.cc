// ProcessStat: the fields behind the name, which may hold anything.
#include "base/process_stat.h"

#include <fstream>
#include <sstream>
#include <string>

namespace moraine {

std::optional<ProcessStat> read_process_stat(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  constexpr int kState = 3, kStart = 22;  // fields count from 1; the name is the second
  std::istringstream fields(line.substr(name_end + 1));
  ProcessStat stat;
  fields >> stat.state;
  std::string skipped;
  for (int i = kState + 1; i < kStart; ++i) fields >> skipped;
  if (!(fields >> stat.start)) return std::nullopt;
  return stat;
}

int64_t process_switches(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  int64_t sum = 0, found = 0;
  for (std::string name; file >> name;) {
    int64_t count = 0;
    if (name != "voluntary_ctxt_switches:" && name != "nonvoluntary_ctxt_switches:") continue;
    if (!(file >> count)) return -1;
    sum += count;
    ++found;
  }
  return found == 2 ? sum : -1;
}

int64_t process_start(int64_t pid) {
  const std::optional<ProcessStat> stat = read_process_stat(pid);
  const bool is_there = stat && stat->state != 'Z' && stat->state != 'X';
  return is_there ? stat->start : -1;
}

}  // namespace moraine
