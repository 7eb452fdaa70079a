// PrefillRate: how many tokens of prompts the engine gets through in a second while more of them wait.
//
// Only steps that leave prompts waiting count: what a step does that takes all there is says what was asked, not
// what could be done. Such a step is counted where it was faster than the rate. Time in which no prompt goes on
// because all seats are taken counts as well: a request waits then too.
// Units:   tokens that are computed, so none that the prefix cache has; seconds of those steps, an average that
//          forgets with a time constant of 20 of them. Nothing fades while nobody waits.
// Threads: one at a time.
#pragma once

#include <cstdint>

namespace moraine {

class PrefillRate {
 public:
  // A step of `seconds` computed `tokens` of prompts; `more`: it left some for later.
  void add(int64_t tokens, double seconds, bool more);
  bool known() const { return seconds_ >= kLeastSeconds; }
  double tokens_per_second() const { return seconds_ > 0 ? tokens_ / seconds_ : 0; }

 private:
  static constexpr double kMemorySeconds = 20, kLeastSeconds = 1;
  double tokens_ = 0, seconds_ = 0;  // both fading
};

}  // namespace moraine
