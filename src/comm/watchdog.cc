// Watchdog: a thread that ends the process unless it is called off in time.
#include "comm/watchdog.h"

#include <unistd.h>

#include <chrono>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "comm/waited.h"

namespace moraine {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks(10);

}  // namespace

Watchdog::Watchdog(double seconds, std::string what) {
  thread_ = start_thread("a deadline", [this, seconds, what = std::move(what)] {
    std::unique_lock lock(mutex_);
    for (Waited waited(now_seconds()); waited.look(now_seconds()) < seconds;) {
      if (changed_.wait_for(lock, kBetweenLooks, [&] { return done_; })) return;
    }
    log_event(Level::kError, "comm.stuck", "seconds={:.0f} reason=\"{}\"", seconds, what);
    _exit(exit_code(Code::kPeerLost));
  });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace moraine
