// Log: one event, one line on stderr, for operators and the supervisor.
//
//   <utc> rank=<r> <I|W|E> <event.name> key=value ...
//
// Event names are constants: they are an interface (docs/operations.md). Kernels, layers and
// collectives never log.
// Output:  what can not be written (a full disk, a closed pipe) is lost; it is never an error, so
//          the state of the log ends no run. Fields are made printable (base/printable.h).
// Threads: any thread may log; a line is written with one write call.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

namespace moraine {

// The rank in lines of this thread from now on, and of threads that have no own (0 at first).
void set_log_rank(int rank);

enum class Level : char { kInfo = 'I', kWarning = 'W', kError = 'E' };

void log_line(Level level, std::string_view event, const std::string& fields);
void log_formatted(Level level, std::string_view event, fmt::string_view format,
                   fmt::format_args args);

// log_event(Level::kInfo, "checkpoint.saved", "step={} bytes={}", step, bytes)
template <class... Args>
void log_event(Level level, std::string_view event, fmt::format_string<Args...> format,
               Args&&... args) {
  log_formatted(level, event, format, fmt::make_format_args(args...));
}

// Text for a person on stderr, as it is.
void say_text(std::string_view text);

// say("left: {}\n", count)
template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  say_text(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace moraine
