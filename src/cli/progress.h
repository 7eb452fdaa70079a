// Progress: one rewritten line on a terminal, or a line now and then in a log: share, rate, time
// left.
#pragma once

#include <cstdint>
#include <string>

namespace moraine {

class ProgressLine {
 public:
  explicit ProgressLine(std::string what,
                        bool shown = true);  // not shown: on a rank that does not speak
  ~ProgressLine();                           // as finish(), unless an Error passes
  // `done` of `total` (0: unknown) in `unit`, "B" or "tokens". All of it is told by finish(): what is
  // behind the count may go on, as the last documents of a file that was read.
  // Errors: kInterrupted, where a command listens (cli/interrupts.h).
  void update(int64_t done, int64_t total, const char* unit);
  void finish();  // ends the line
  double seconds() const;

 private:
  void print(const std::string& line);

  std::string what_;
  std::string all_;  // the line that finish() tells
  double started_, printed_;
  bool shown_, terminal_, open_ = false;
};

}  // namespace moraine
