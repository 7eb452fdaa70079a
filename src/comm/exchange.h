// Exchange: the calls that collectives make of a transport, with the group's channel, deadline and
// the operation's label filled in.
//
// If the operation ends by an exception, the destructor waits until no other rank reads what was
// sent: sent memory must outlive the Exchange.
#pragma once

#include <algorithm>
#include <vector>

#include "comm/communicator.h"
#include "comm/label.h"

namespace moraine {

class Exchange {
 public:
  Exchange(Communicator& comm, Operation operation)
      : comm_(comm), label_(comm.next_label(static_cast<int>(operation))) {}
  ~Exchange() {
    for (Incoming& in : open_) comm_.transport().drop(in);  // first: others wait for it as well
    for (const SendTicket& ticket : sent_)
      comm_.transport().withdraw(ticket, label_text(label_) + " was left by an exception");
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void send(int member, ConstBytes data) {
    const SendTicket ticket = comm_.transport().send(comm_.global_rank(member), comm_.channel(),
                                                     label_, data, comm_.deadline());
    if (ticket.sequence != 0) sent_.push_back(ticket);
  }
  // All data of earlier sends may be changed.
  void wait_sent() {
    for (const SendTicket& ticket : sent_) comm_.transport().wait_sent(ticket, comm_.deadline());
    sent_.clear();
  }
  void receive(int member, Bytes out) {
    comm_.transport().receive(comm_.global_rank(member), comm_.channel(), label_, out,
                              comm_.deadline());
  }
  Incoming open(int member, int64_t bytes) {
    return open_.emplace_back(comm_.transport().open(comm_.global_rank(member), comm_.channel(),
                                                     label_, bytes, comm_.deadline()));
  }
  ConstBytes next(Incoming& in, int64_t bytes, Bytes staging) {
    return comm_.transport().next(in, bytes, staging, comm_.deadline());
  }
  void close(Incoming& in) {
    comm_.transport().close(in);
    std::erase_if(open_, [&in](const Incoming& other) { return other.peer == in.peer; });
  }

 private:
  Communicator& comm_;
  const uint64_t label_;
  std::vector<SendTicket> sent_;
  std::vector<Incoming> open_;  // at most one of a member
};

// The member `steps` after this one, around the group: everybody starts with another peer.
inline int member_after(const Communicator& comm, int steps) {
  return (comm.rank() + steps) % comm.size();
}
inline int member_before(const Communicator& comm, int steps) {
  return (comm.rank() - steps % comm.size() + comm.size()) % comm.size();
}

}  // namespace moraine
