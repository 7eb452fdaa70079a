// Broadcast down a binomial tree: ceil(log2 P) steps, each member receives once.
#include "comm/collectives.h"
#include "comm/exchange.h"

namespace moraine {

void broadcast(Communicator& comm, int root, Bytes data) {
  Exchange exchange(comm, Operation::kBroadcast);
  const int size = comm.size(), place = (comm.rank() - root + size) % size;
  const auto member = [root, size](int p) { return (p + root) % size; };
  int distance = 1;
  while (distance < size && (place & distance) == 0) distance *= 2;
  if (place != 0) exchange.receive(member(place - distance), data);
  // Children: place + every smaller power of two, the farthest (with most below it) first.
  for (distance /= 2; distance > 0; distance /= 2) {
    if (place + distance < size) exchange.send(member(place + distance), data);
  }
  exchange.wait_sent();
}

}  // namespace moraine
