// Formats an event line with a UTC time stamp; one write call, so lines of threads never mix.
#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>

#include "base/printable.h"

namespace moraine {
namespace {

std::atomic<int> process_rank{0};
thread_local int thread_rank = -1;

}  // namespace

void set_log_rank(int rank) {
  thread_rank = rank;
  process_rank = rank;
}

void log_line(Level level, std::string_view event, const std::string& fields) {
  const auto now = std::chrono::system_clock::now();
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  const std::time_t seconds = static_cast<std::time_t>(ms / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  const std::string line =
      fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z rank={} {} {}{}{}\n",
                  utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
                  utc.tm_sec, ms % 1000, thread_rank >= 0 ? thread_rank : process_rank.load(),
                  static_cast<char>(level), event, fields.empty() ? "" : " ", printable(fields));
  say_text(line);
}

void say_text(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

void log_formatted(Level level, std::string_view event, fmt::string_view format,
                   fmt::format_args args) {
  log_line(level, event, fmt::vformat(format, args));
}

}  // namespace moraine
