// BetweenRanks: a rank's core, and a message.
#include "bench/between_ranks.h"

#include <sched.h>

#include "comm/exchange.h"

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

void move_and_answer(Communicator& comm, std::vector<std::byte>& data) {
  std::vector<std::byte> word(kAnswerBytes);
  Exchange e(comm, Operation::kMessage);
  if (comm.rank() == 0) {
    e.send(1, data);
    e.receive(1, word);
  } else {
    e.receive(0, data);
    e.send(0, word);
  }
  e.wait_sent();
}

}  // namespace moraine
