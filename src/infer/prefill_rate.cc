// PrefillRate: two sums that fade alike.
#include "infer/prefill_rate.h"

#include <cmath>

namespace moraine {

void PrefillRate::add(int64_t tokens, double seconds, bool more) {
  const auto done = static_cast<double>(tokens);
  const bool faster = known() && done > tokens_per_second() * seconds;
  if (!more && !faster) return;
  const double kept = std::exp(-seconds / kMemorySeconds);
  tokens_ = kept * tokens_ + done;
  seconds_ = kept * seconds_ + seconds;
}

}  // namespace moraine
