// LogTail: what comes to a file of lines, as it comes, and the events in it.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "supervisor/run_event.h"

namespace moraine {

// A line of base/log.h; nothing if it is another one.
std::optional<LogEvent> parse_log_line(std::string_view line);

class LogTail {
 public:
  static constexpr size_t kLinesKept = 5;

  // From `offset` on. The file need not be there yet.
  explicit LogTail(std::string path, int64_t offset = 0);

  // What has come since, in whole lines or, if `whole_lines` is false, to the last byte.
  std::string read(bool whole_lines = true);
  void go_to(int64_t offset) { offset_ = offset; }
  int64_t offset() const { return offset_; }
  // The last lines that read() gave, for who must say why a process ended.
  std::vector<std::string> last_lines() const { return {last_.begin(), last_.end()}; }
  void forget_lines() { last_.clear(); }

 private:
  const std::string path_;
  int64_t offset_;
  std::deque<std::string> last_;
};

}  // namespace moraine
