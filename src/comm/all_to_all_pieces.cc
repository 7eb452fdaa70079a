// All-to-all of pieces: one round for each piece of the longest list, so that no ring of messages runs full
// while its reader waits for somebody else.
#include <algorithm>

#include "base/check.h"
#include "comm/collectives.h"
#include "comm/exchange.h"

namespace moraine {

void all_to_all_pieces(Communicator& comm, std::span<const std::vector<ConstBytes>> send,
                       std::span<const std::vector<Bytes>> receive) {
  const size_t me = static_cast<size_t>(comm.rank()), size = static_cast<size_t>(comm.size());
  MR_CHECK(send.size() == size && receive.size() == size, "%zu and %zu lists for %zu members",
           send.size(), receive.size(), size);
  MR_CHECK(send[me].empty() && receive[me].empty(), "pieces for itself");
  size_t rounds = 0;
  for (size_t m = 0; m < size; ++m) rounds = std::max({rounds, send[m].size(), receive[m].size()});
  Exchange exchange(comm, Operation::kAllToAll);
  for (size_t i = 0; i < rounds; ++i) {
    for (int step = 1; step < comm.size(); ++step) {
      const int m = member_after(comm, step);
      const std::vector<ConstBytes>& to = send[static_cast<size_t>(m)];
      if (i < to.size()) exchange.send(m, to[i]);
    }
    for (int step = 1; step < comm.size(); ++step) {
      const int m = member_before(comm, step);
      const std::vector<Bytes>& from = receive[static_cast<size_t>(m)];
      if (i < from.size()) exchange.receive(m, from[i]);
    }
  }
  exchange.wait_sent();
}

}  // namespace moraine
