// Prints to stderr, at most five times a second on a terminal, every five seconds elsewhere.
#include "cli/progress.h"

#include <unistd.h>

#include <exception>

#include "base/clock.h"
#include "base/log.h"
#include "cli/interrupts.h"
#include "train/metrics.h"

namespace moraine {

ProgressLine::ProgressLine(std::string what, bool shown)
    : what_(std::move(what)),
      started_(now_seconds()),
      printed_(started_),
      shown_(shown),
      terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressLine::~ProgressLine() {
  if (std::uncaught_exceptions() > 0) all_.clear();
  finish();
}

void ProgressLine::finish() {
  if (!all_.empty()) print(all_);
  if (open_ && terminal_) say("\n");
  all_.clear();
  open_ = false;
}

void ProgressLine::print(const std::string& line) {
  say("{}{}{}", terminal_ ? "\r\033[K" : "", line, terminal_ ? "" : "\n");
  open_ = true;
}

double ProgressLine::seconds() const { return now_seconds() - started_; }

void ProgressLine::update(int64_t done, int64_t total, const char* unit) {
  throw_if_interrupted();
  if (!shown_) return;
  const double now = now_seconds();
  if (now - printed_ < (terminal_ ? 0.2 : 5.0) && done != total) return;
  const double rate = static_cast<double>(done) / (now - started_ + 1e-9);
  std::string line = fmt::format(
      "{}: {}{} {}", what_, format_count(static_cast<double>(done)),
      total > 0 ? fmt::format("/{}", format_count(static_cast<double>(total))) : "", unit);
  line += rate < 1 ? fmt::format("  {} {}/min", format_count(60 * rate), unit)
                   : fmt::format("  {} {}/s", format_count(rate), unit);
  if (total > 0 && rate > 0)
    line += fmt::format("  left {}", format_duration(static_cast<double>(total - done) / rate));
  all_ = done == total ? line : "";
  if (done == total) return;
  printed_ = now;
  print(line);
}

}  // namespace moraine
