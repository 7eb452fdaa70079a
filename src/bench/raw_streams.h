// RawStreams: plain TCP between two ranks, one stream for each rail: what there is to reach.
//
// Blocking calls, a thread for each stream and end, nothing checked, nothing acknowledged but by the kernel.
//
// Errors: kIo, kPeerLost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/pool.h"
#include "comm/transport.h"

namespace moraine {

class RawStreams {
 public:
  // Rank 1 listens on its address of each rail, rank 0 connects from its own. Both call it.
  RawStreams(Transport& transport, const std::vector<std::string>& rails);
  ~RawStreams();
  RawStreams(const RawStreams&) = delete;
  RawStreams& operator=(const RawStreams&) = delete;

  int count() const { return static_cast<int>(fds_.size()); }
  // Rank 0 sends, rank 1 receives and answers a byte on every stream; rank 0 waits for these.
  void transfer(std::vector<std::byte>& data);
  // 8 bytes there and back.
  void ping();

 private:
  bool is_sender_;
  std::vector<int> fds_;
  Pool pool_;
};

}  // namespace moraine
