// The one place that names the limit.
#include "base/thread.h"

#include "base/error.h"

namespace moraine {

void thread_not_started(const char* what, const std::system_error& reason) {
  throw_error(Code::kInvalidArgument,
              "start a thread for {}: {}; wanted a higher limit on processes (ulimit -u, "
              "pids.max), or fewer threads",
              what, reason.code().message());
}

}  // namespace moraine
