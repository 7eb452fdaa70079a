// All-to-all, flat: every pair exchanges one message.
#include <cstring>

#include "base/check.h"
#include "comm/collectives.h"
#include "comm/exchange.h"

namespace moraine {

void all_to_all(Communicator& comm, std::span<const ConstBytes> send,
                std::span<const Bytes> receive) {
  const size_t me = static_cast<size_t>(comm.rank()), size = static_cast<size_t>(comm.size());
  MR_CHECK(send.size() == size && receive.size() == size, "%zu and %zu pieces for %zu members",
           send.size(), receive.size(), size);
  MR_CHECK(send[me].size() == receive[me].size(), "%zu and %zu bytes to itself", send[me].size(),
           receive[me].size());
  Exchange exchange(comm, Operation::kAllToAll);
  for (int i = 1; i < comm.size(); ++i) {
    const int m = member_after(comm, i);
    exchange.send(m, send[static_cast<size_t>(m)]);
  }
  for (int i = 1; i < comm.size(); ++i) {
    const int m = member_before(comm, i);
    exchange.receive(m, receive[static_cast<size_t>(m)]);
  }
  // Last: it fills the time until slower members have read.
  if (!send[me].empty()) std::memmove(receive[me].data(), send[me].data(), send[me].size());
  exchange.wait_sent();
}

}  // namespace moraine
