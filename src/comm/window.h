// Window: memory of every member that the others of one host read and write without its help.
//
// put and get are done when they return (plain copies between threads, process_vm_writev and
// process_vm_readv between processes). Order between a put and a later look by its owner comes only
// from signals: put_signal writes, then adds one to a counter of the target; who sees the counter
// sees the bytes. Counters belong to the communicator's channel and start at zero with each Window:
// one Window per communicator at a time.
//
// REQUIRES: one host; the memory stays until every member is done with it (barrier).
// Errors:   kPeerLost. An offset outside the target's memory is the caller's bug.
// Threads:  one at a time for wait_signal; put, get: any.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "comm/host_transport.h"

namespace moraine {

class Window {
 public:
  // Collective: every member brings memory of its own size.
  Window(Communicator& comm, Bytes mine);

  int64_t bytes_of(int member) const { return views_[static_cast<size_t>(member)].bytes; }

  void put(int member, int64_t offset, ConstBytes data);
  void get(int member, int64_t offset, Bytes out);
  // signal: [0, kSignals).
  void put_signal(int member, int64_t offset, ConstBytes data, int signal);
  // Until this member's counter is `count` or more. `from`: who will raise it, for messages.
  void wait_signal(int signal, uint64_t count, int from);

 private:
  struct View {
    uint64_t address;
    int64_t bytes;
  };
  uint64_t address(int member, int64_t offset, size_t bytes) const;

  Communicator& comm_;
  HostTransport& host_;
  uint64_t label_ = 0;
  std::vector<View> views_;
};

}  // namespace moraine
