// Formats an event line with a UTC time stamp; one write call, so lines of threads never mix.
#include "base/log.h"

#include <unistd.h>

#include <chrono>
#include <ctime>

namespace moraine {

void log_line(Level level, std::string_view event, const std::string& fields) {
  const auto now = std::chrono::system_clock::now();
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  const std::time_t seconds = static_cast<std::time_t>(ms / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  const std::string line = fmt::format(
      "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z rank=0 {} {}{}{}\n", utc.tm_year + 1900,
      utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, ms % 1000,
      static_cast<char>(level), event, fields.empty() ? "" : " ", fields);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace moraine
