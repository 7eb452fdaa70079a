// Barrier by dissemination: in round k a member hears of 2^k others; ceil(log2 P) rounds.
#include "comm/collectives.h"
#include "comm/exchange.h"

namespace moraine {

void barrier(Communicator& comm) {
  Exchange exchange(comm, Operation::kBarrier);
  for (int distance = 1; distance < comm.size(); distance *= 2) {
    exchange.send(member_after(comm, distance), {});
    exchange.receive(member_before(comm, distance), {});
  }
}

}  // namespace moraine
