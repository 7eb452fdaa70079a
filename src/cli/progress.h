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
  ~ProgressLine();                           // ends the line
  // `done` of `total` (0: unknown) in `unit`, "B" or "tokens".
  void update(int64_t done, int64_t total, const char* unit);
  double seconds() const;

 private:
  std::string what_;
  double started_, printed_;
  bool shown_, terminal_, open_ = false;
};

}  // namespace moraine
