// Strangers: who was sent away where ranks meet, as a sum in the heartbeat, with an event now and then.
//
// A flood is one event in kStrangerNewsSeconds, and never one for each that came.
#pragma once

#include <cstdint>

namespace moraine {

constexpr double kStrangerNewsSeconds = 10;

class Strangers {
 public:
  // `total` so far, never less than before. How many are to be told of now; 0: there are none, or it is too soon.
  int64_t note(int64_t total, double now);

 private:
  int64_t total_ = 0, told_ = 0;
  double told_at_ = -kStrangerNewsSeconds;
};

}  // namespace moraine
