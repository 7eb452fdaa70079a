// Communicator: an ordered group of ranks that perform the same collectives in the same order.
//
// A value handed in, never looked up. Each has a channel of its own, so collectives of different
// communicators may be in flight at once; those of one follow each other. Ranks make their
// communicators in the same order. A group never changes; a new group is a new communicator.
//
// Labels count operations (comm/label.h). Ranks that do different things are found at the first
// message (transport.h).
#pragma once

#include <string>
#include <vector>

#include "comm/transport.h"

namespace moraine {

class Communicator {
 public:
  // `ranks`: of the transport, ascending, this rank among them. deadline: of every wait.
  Communicator(Transport& transport, std::vector<int> ranks, int channel, std::string name,
               double deadline_seconds);

  int rank() const { return rank_; }  // position in the group
  int size() const { return static_cast<int>(ranks_.size()); }
  int global_rank(int member) const { return ranks_[static_cast<size_t>(member)]; }
  bool one_host() const { return one_host_; }
  int channel() const { return channel_; }
  double deadline() const { return deadline_; }
  const std::string& name() const { return name_; }
  Transport& transport() const { return *transport_; }

  void set_step(int64_t step) { step_ = step; }  // for labels and messages
  // Collectives call this once each; `operation` is an Operation (comm/label.h).
  uint64_t next_label(int operation);

 private:
  Transport* transport_;
  std::vector<int> ranks_;
  int rank_ = 0, channel_ = 0;
  bool one_host_ = true;
  std::string name_;
  double deadline_;
  int64_t step_ = 0;
  uint32_t operations_ = 0;
};

}  // namespace moraine
