// QueueLimit: three comparisons.
#include "infer/queue_limit.h"

#include <algorithm>
#include <cmath>

namespace moraine {
namespace {

[[noreturn]] void refuse(const std::string& why, double seconds) {
  const auto most = static_cast<double>(kMostRetrySeconds);
  const auto retry = static_cast<int64_t>(std::ceil(std::clamp(seconds, 1.0, most)));
  throw QueueFull(fmt::format("{}; try again in {} s", why, retry), retry);
}

}  // namespace

void check_queue(const QueueLimits& limits, const QueueLoad& load, int64_t prompt_tokens,
                 bool let_in) {
  if (let_in) return;
  const double seconds = load.seconds();
  if (limits.requests > 0 && load.requests >= limits.requests) {
    refuse(fmt::format("{} requests are waiting, as many as may", load.requests),
           seconds / static_cast<double>(load.requests));
  }
  const int64_t tokens = load.tokens + prompt_tokens;
  if (limits.tokens > 0 && load.requests > 0 && tokens > limits.tokens) {
    const auto over = static_cast<double>(tokens - limits.tokens);
    refuse(fmt::format("{} prompt tokens are waiting, and {} more would pass the {} that may",
                       load.tokens, prompt_tokens, limits.tokens),
           load.tokens_per_second > 0 ? over / load.tokens_per_second : 0);
  }
  if (limits.seconds > 0 && seconds > limits.seconds) {
    refuse(fmt::format("about {:.0f} s of prompt work are waiting, and {:g} s may",
                       std::ceil(seconds), limits.seconds),
           seconds - limits.seconds);
  }
}

}  // namespace moraine
