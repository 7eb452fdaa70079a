// The one place that names the limit.
#include "base/thread.h"

#include <pthread.h>

#include <ctime>

#include "base/error.h"

namespace moraine {
namespace {

double seconds_of(clockid_t clock) {
  timespec t{};
  if (::clock_gettime(clock, &t) != 0) return 0;
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

void thread_not_started(const char* what, const std::system_error& reason) {
  throw_error(Code::kInvalidArgument,
              "start a thread for {}: {}; wanted a higher limit on processes (ulimit -u, "
              "pids.max), or fewer threads",
              what, reason.code().message());
}

double thread_seconds(std::thread& thread) {
  clockid_t clock;
  if (!thread.joinable() || ::pthread_getcpuclockid(thread.native_handle(), &clock) != 0) return 0;
  return seconds_of(clock);
}

double thread_seconds() { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace moraine
