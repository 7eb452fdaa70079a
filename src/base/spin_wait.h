// SpinWait: how a thread waits for what is soon there: it looks again and again for a while, then sleeps.
//
// To wake a sleeper costs the one who wakes it 5 to 10 microseconds of a virtual machine, and the sleeper as much; to
// spin costs others the core. So the time of spinning follows what it brought: 50 microseconds after a wait that ended
// within them, half of the last after one that did not, down to a microsecond, as in ranks that share their cores.
//
// Threads: one at a time.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace moraine {

class SpinWait {
 public:
  // Until `ready()`, or until `park()` returns, which sleeps. `looks`: at `ready`, between two looks at the clock.
  template <class Ready, class Park>
  void wait(int looks, const Ready& ready, const Park& park) {
    if (ready()) return;
    const double begin = now_seconds();
    double now = begin;
    for (bool is_ready = false; !is_ready; now = now_seconds()) {
      if (now - begin > seconds_) {
        park();
        now = now_seconds();
        break;
      }
      for (int i = 0; i < looks && !is_ready; ++i) {
        relax();
        is_ready = ready();
      }
    }
    seconds_ = now - begin < kSeconds ? kSeconds : std::max(seconds_ / 2, kLeastSeconds);
  }

 private:
  static constexpr double kSeconds = 50e-6;  // longer than the gap between two kernels of a layer
  static constexpr double kLeastSeconds = 1e-6;

  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  double seconds_ = kSeconds;
};

}  // namespace moraine
