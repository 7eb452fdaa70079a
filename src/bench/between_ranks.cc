// BetweenRanks: a rank's core.
#include "bench/between_ranks.h"

#include <sched.h>

namespace moraine {

void bind_to_core(int rank) {
  cpu_set_t usable, one;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  if (CPU_COUNT(&usable) == 1) return;  // bound already
  int place = rank % CPU_COUNT(&usable);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &usable) || place-- > 0) continue;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

}  // namespace moraine
