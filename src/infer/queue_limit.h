// QueueLimit: whether one more request may wait, and if not, when to ask again.
//
//   requests  in the queue
//   tokens    of the prompts in the queue and of this one; a queue that is empty takes a prompt of any length
//   seconds   until the prompts that are there, in the queue or begun, are computed: work / rate. The request's
//             own prompt does not count, so that a long one waits no longer for its turn than a short one
//
// A request with several prompts or choices is let in or refused as a whole: what is compared is what waits before it.
#pragma once

#include <cstdint>

#include "base/error.h"

namespace moraine {

struct QueueLimits {
  int64_t requests = 0, tokens = 0;  // 0: no limit
  double seconds = 0;                // 0: no limit
};

struct QueueLoad {
  int64_t requests = 0, tokens = 0;  // in the queue
  int64_t prompt_work = 0;           // tokens to compute of prompts in the queue and begun
  double tokens_per_second = 0;      // of prompts; 0: not known yet
  // Until prompt_work is done; 0 where the rate is not known.
  double seconds() const {
    return tokens_per_second > 0 ? static_cast<double>(prompt_work) / tokens_per_second : 0;
  }
};

// kOverloaded.
class QueueFull : public Error {
 public:
  QueueFull(const std::string& message, int64_t retry_seconds)
      : Error(Code::kOverloaded, message), retry_seconds_(retry_seconds) {}
  int64_t retry_seconds() const { return retry_seconds_; }  // 1 .. kMostRetrySeconds

 private:
  int64_t retry_seconds_;
};

inline constexpr int64_t kMostRetrySeconds = 60;

// `prompt_tokens`: of the request, with others_tokens; `let_in`: Request::let_in, which is never refused.
// Errors: QueueFull names the limit, what is there, and when the queue is estimated to be short enough.
void check_queue(const QueueLimits& limits, const QueueLoad& load, int64_t prompt_tokens,
                 bool let_in);

}  // namespace moraine
