// Waited: how long a wait has looked in vain, which is what its deadline is about.
//
// Less than the clock says where this process did not run: it was stopped, its virtual machine paused, its cores taken.
// Its peers may not have run either, and what they sent may be there a moment later.
#pragma once

#include <algorithm>
#include <utility>

namespace moraine {

class Waited {
 public:
  // Seconds; whoever waits looks every few milliseconds. The same for all that look: where they are late, a deadline
  // and the patience with a silent rank (rails/rail_peer.h), which is to end first, grow alike.
  static constexpr double kMostBetweenLooks = 0.03;

  explicit Waited(double now) : looked_at_(now) {}
  // Seconds so far, up to this look.
  double look(double now) {
    return seconds_ += std::clamp(now - std::exchange(looked_at_, now), 0.0, kMostBetweenLooks);
  }

 private:
  double looked_at_, seconds_ = 0;
};

}  // namespace moraine
