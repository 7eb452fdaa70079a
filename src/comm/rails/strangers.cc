// Strangers: what was not told yet, once it is time.
#include "comm/rails/strangers.h"

#include "base/heartbeat.h"

namespace moraine {

int64_t Strangers::note(int64_t total, double now) {
  if (total > total_) heartbeat().strangers.fetch_add(total - total_, std::memory_order_relaxed);
  total_ = total;
  const int64_t untold = total - told_;
  if (untold == 0 || now - told_at_ < kStrangerNewsSeconds) return 0;
  told_ = total;
  told_at_ = now;
  return untold;
}

}  // namespace moraine
