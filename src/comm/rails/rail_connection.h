// RailConnection: one TCP connection of a rail: it shakes hands, then moves frames between a socket and a RailPeer.
//
// Nothing here waits: every call does what the socket allows now. Payloads go straight from the sender's memory into
// the socket and from the socket to their place; where that is, is asked before every call of the kernel, so that
// memory which was given back in between is not touched (rail_peer.h).
//
// With a secret each head is followed by two tags, of the payload and of the head with that; their numbers count the
// frames of a direction, so that a frame that was changed, left out, repeated or moved ends the connection.
//
// Errors:  none; a value says why a connection must end.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/rails/frame.h"
#include "comm/rails/hello.h"
#include "comm/rails/rail_peer.h"
#include "comm/rails/socket_address.h"

namespace moraine {

enum class RailEnd : uint8_t {
  kNone,      // goes on
  kEnded,     // closed or reset by the other side, or unreachable
  kRefused,   // the host answers, and nobody listens
  kGarbage,   // bytes that are no frame, or break the protocol
  kDamaged,   // a frame whose hash or tag is wrong
  kStranger,  // a hello that does not fit: see hello_fault
};

class RailConnection {
 public:
  struct Place {
    HelloPlace hello;
    const std::string* secret = nullptr;
  };
  // Begins to connect from `local` (any port) to `remote`, as `hello`. fd() < 0: this host cannot.
  RailConnection(const Place& place, const Hello& hello, const SocketAddress& local,
                 const SocketAddress& remote);
  // Accepted: who it is will be said.
  RailConnection(const Place& place, int fd);
  ~RailConnection();
  RailConnection(const RailConnection&) = delete;
  RailConnection& operator=(const RailConnection&) = delete;

  int fd() const { return fd_; }
  bool is_open() const { return state_ == State::kOpen; }
  bool has_spoken() const { return in_done_ > 0 || state_ != State::kAwaitHello; }
  // Of the other side, once it is open; for an acceptor also whom it belongs to.
  const Hello& other() const { return other_; }
  uint64_t number() const { return connector_hello().connection; }
  HelloFault hello_fault() const { return hello_fault_; }
  int error() const { return error_; }  // errno of kEnded, or 0

  RailEnd
  see_connected();  // whether the other host answered the attempt to connect, when fd() is writable
  RailEnd shake_hands();
  RailEnd read_frames(RailPeer& peer, int rail, std::vector<int>* lost);
  // One frame at most; *wrote: there was one.
  RailEnd write_frame(RailPeer& peer, int rail, double now, bool* wrote);
  bool is_blocked() const { return blocked_; }  // there is more to write than the socket takes
  void reset_on_close();                        // what is under way is worth nothing any more

 private:
  enum class State : uint8_t { kConnecting, kAwaitAnswer, kAwaitHello, kAwaitProof, kOpen };
  const Hello& connector_hello() const { return is_connector_ ? mine_ : other_; }
  const Hello& acceptor_hello() const { return is_connector_ ? other_ : mine_; }
  RailEnd read_exactly(void* to, size_t bytes, bool* done);
  bool send_now(const void* data, size_t bytes);
  RailEnd take_hello();
  RailEnd take_answer();
  RailEnd take_proof();
  // Takes what has been read.
  RailEnd take_buffered(RailPeer& peer, int rail, std::vector<int>* lost);
  RailEnd take_head(RailPeer& peer, int rail, std::vector<int>* lost);
  RailEnd finish_payload(RailPeer& peer, int rail, std::vector<int>* lost);
  RailEnd fill(RailPeer& peer, int64_t* got);
  size_t buffered() const { return buffer_end_ - buffer_begin_; }
  void open();
  size_t head_bytes() const { return in_seal_ == nullptr ? sizeof(FrameHead) : sizeof(SealedHead); }
  void begin_frame(const std::byte* payload);

  const Place place_;
  const bool is_connector_;
  State state_;
  int fd_ = -1, error_ = 0;
  Hello mine_, other_;
  HelloFault hello_fault_ = HelloFault::kNone;
  struct {
    Hello hello;
    RailProof proof;
  } answer_;
  size_t in_done_ = 0;  // bytes of what is being read: hello, proof or payload
  // What travels: a head, with a secret all of this.
  struct SealedHead {
    FrameHead head;
    RailTag payload_tag = {}, tag = {};  // tag: of the 88 bytes before
  };
  static_assert(sizeof(SealedHead) == sizeof(FrameHead) + 2 * sizeof(RailTag));
  std::unique_ptr<RailSealer> in_seal_, out_seal_;
  uint64_t frames_in_ = 0, frames_out_ = 0;
  SealedHead sealed_in_, sealed_out_;
  FrameHead head_;
  bool in_payload_ = false;
  std::array<std::byte, 4096> buffer_;  // heads, and payloads as small as these
  size_t buffer_begin_ = 0, buffer_end_ = 0;
  bool is_drained_ = false;         // the socket gave all it had
  std::vector<std::byte> nowhere_;  // for payloads that are not wanted
  Outbound out_;
  bool is_writing_ = false, blocked_ = false;
  size_t out_done_ = 0;
};

}  // namespace moraine
