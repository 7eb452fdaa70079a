// Watchdog: ends this process if calls into a library that knows no deadline do not come back in
// time.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace moraine {

class Watchdog {
 public:
  // Unless destroyed within `seconds` (waited.h): an error event that says `what`, and exit with kPeerLost.
  Watchdog(double seconds, std::string what);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace moraine
