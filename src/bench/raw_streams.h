// RawStreams: plain TCP between two ranks, one stream for each rail: what there is to reach.
//
// Blocking calls, a thread for each stream and end, nothing checked, nothing acknowledged but by the kernel.
//
// Errors: kIo, kPeerLost; kTimeout where the other rank does not come.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/pool.h"
#include "comm/transport.h"

namespace moraine {

// Closed with it.
class OpenSocket {
 public:
  explicit OpenSocket(int fd) : fd_(fd) {}
  OpenSocket(OpenSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OpenSocket& operator=(OpenSocket&&) = delete;
  ~OpenSocket();
  int fd() const { return fd_; }  // below 0: none

 private:
  int fd_;
};

class RawStreams {
 public:
  // Rank 1 listens on its address of each rail, rank 0 connects from its own. Both call it.
  RawStreams(Transport& transport, const std::vector<std::string>& rails);

  int count() const { return static_cast<int>(sockets_.size()); }
  // Rank 0 sends, rank 1 receives and answers a byte on every stream; rank 0 waits for these.
  void transfer(std::vector<std::byte>& data);
  // 8 bytes there and back.
  void ping();

 private:
  bool is_sender_;
  std::vector<OpenSocket> sockets_;
  Pool pool_;
};

}  // namespace moraine
