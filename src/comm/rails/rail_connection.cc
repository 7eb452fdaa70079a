// RailConnection: reads and writes as much as the socket allows.
#include "comm/rails/rail_connection.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace moraine {
namespace {

// One connection does not keep the others waiting.
constexpr int64_t kMostBytesAtOnce = 8 * kChunkBytes;
constexpr int kMostFramesAtOnce = 64;

void set_up(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

RailConnection::RailConnection(const Place& place, const Hello& hello, const sockaddr_in& local,
                               const sockaddr_in& remote)
    : place_(place), is_connector_(true), state_(State::kConnecting), mine_(hello) {
  mine_.nonce = make_nonce();
  std::memcpy(&mine_.connection, mine_.nonce.data(), sizeof mine_.connection);
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd_ < 0) return;
  set_up(fd_);
  sockaddr_in from = local;
  from.sin_port = 0;
  const bool ok = bind(fd_, reinterpret_cast<const sockaddr*>(&from), sizeof from) == 0 &&
                  (connect(fd_, reinterpret_cast<const sockaddr*>(&remote), sizeof remote) == 0 ||
                   errno == EINPROGRESS);
  error_ = ok ? 0 : errno;
}

RailConnection::RailConnection(const Place& place, int fd)
    : place_(place), is_connector_(false), state_(State::kAwaitHello), fd_(fd) {
  set_up(fd_);
}

RailConnection::~RailConnection() {
  if (fd_ >= 0) close(fd_);
}

void RailConnection::reset_on_close() {
  const linger at_once = {1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

// Hands -------------------------------------------------------------------------------------------

RailEnd RailConnection::read_exactly(void* to, size_t bytes, bool* done) {
  *done = false;
  while (in_done_ < bytes) {
    const ssize_t n =
        recv(fd_, static_cast<std::byte*>(to) + in_done_, bytes - in_done_, MSG_DONTWAIT);
    if (n < 0 && would_block(errno)) return RailEnd::kNone;
    if (n <= 0) {
      error_ = n < 0 ? errno : 0;
      return error_ == ECONNREFUSED ? RailEnd::kRefused : RailEnd::kEnded;
    }
    in_done_ += static_cast<size_t>(n);
  }
  in_done_ = 0;
  *done = true;
  return RailEnd::kNone;
}

// A few hundred bytes into an empty socket: they fit.
bool RailConnection::send_now(const void* data, size_t bytes) {
  return send(fd_, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes);
}

RailEnd RailConnection::take_hello() {
  bool done = false;
  const RailEnd end = read_exactly(&other_, sizeof other_, &done);
  if (end != RailEnd::kNone && in_done_ > 0) {
    hello_fault_ = HelloFault::kGarbage;  // the begin of something
    return RailEnd::kStranger;
  }
  if (!done) return end;
  hello_fault_ = check_hello(other_, place_.hello);
  if (hello_fault_ != HelloFault::kNone) return RailEnd::kStranger;
  mine_ = other_;
  std::swap(mine_.from, mine_.to);
  mine_.nonce = make_nonce();
  answer_.hello = mine_;
  answer_.proof =
      prove_hello(*place_.secret, HelloPart::kAcceptor, connector_hello(), acceptor_hello());
  state_ = State::kAwaitProof;
  return send_now(&answer_, sizeof answer_) ? RailEnd::kNone : RailEnd::kEnded;
}

RailEnd RailConnection::take_answer() {
  bool done = false;
  const RailEnd end = read_exactly(&answer_, sizeof answer_, &done);
  if (!done) return end;
  other_ = answer_.hello;
  hello_fault_ = check_hello(other_, place_.hello);
  const bool is_asked =
      other_.from == mine_.to && other_.rail == mine_.rail && other_.connection == mine_.connection;
  if (!is_asked && hello_fault_ == HelloFault::kNone) hello_fault_ = HelloFault::kOtherRank;
  if (hello_fault_ == HelloFault::kNone &&
      !same_proof(answer_.proof, prove_hello(*place_.secret, HelloPart::kAcceptor, mine_, other_)))
    hello_fault_ = HelloFault::kGarbage;
  if (hello_fault_ != HelloFault::kNone) return RailEnd::kStranger;
  const RailProof proof = prove_hello(*place_.secret, HelloPart::kConnector, mine_, other_);
  state_ = State::kOpen;
  return send_now(&proof, sizeof proof) ? RailEnd::kNone : RailEnd::kEnded;
}

RailEnd RailConnection::take_proof() {
  bool done = false;
  const RailEnd end = read_exactly(&answer_.proof, sizeof answer_.proof, &done);
  if (!done) return end;
  if (!same_proof(answer_.proof,
                  prove_hello(*place_.secret, HelloPart::kConnector, other_, mine_))) {
    hello_fault_ = HelloFault::kGarbage;
    return RailEnd::kStranger;
  }
  state_ = State::kOpen;
  return RailEnd::kNone;
}

RailEnd RailConnection::see_connected() {
  socklen_t bytes = sizeof error_;
  if (error_ == 0) getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error_, &bytes);
  if (error_ == 0) return RailEnd::kNone;
  return error_ == ECONNREFUSED ? RailEnd::kRefused : RailEnd::kEnded;
}

RailEnd RailConnection::shake_hands() {
  if (state_ == State::kConnecting) {
    const RailEnd end = see_connected();
    if (end != RailEnd::kNone) return end;
    if (!send_now(&mine_, sizeof mine_)) {
      if (errno == ENOTCONN || would_block(errno)) return RailEnd::kNone;
      error_ = errno;
      return error_ == ECONNREFUSED ? RailEnd::kRefused : RailEnd::kEnded;
    }
    state_ = State::kAwaitAnswer;
  }
  if (state_ == State::kAwaitHello) {
    const RailEnd end = take_hello();
    if (end != RailEnd::kNone) return end;
  }
  if (state_ == State::kAwaitProof) return take_proof();
  return state_ == State::kAwaitAnswer ? take_answer() : RailEnd::kNone;
}

// Frames ------------------------------------------------------------------------------------------

RailEnd RailConnection::take_head(RailPeer& peer, int rail, std::vector<int>* lost, int64_t* got) {
  bool done = false;
  const RailEnd end = read_exactly(&head_, sizeof head_, &done);
  if (!done) return end;
  *got = sizeof head_;
  const HeadFault fault = check_head(head_, place_.hello.generation);
  if (fault == HeadFault::kHash) return RailEnd::kDamaged;
  if (fault != HeadFault::kNone || !peer.accepts(head_)) return RailEnd::kGarbage;
  if (head_.payload_bytes == 0) {
    if (!peer.arrived(rail, head_, nullptr, lost)) return RailEnd::kGarbage;
  } else {
    in_payload_ = true;
  }
  return RailEnd::kNone;
}

// The next head comes with the rest of the payload, in one call.
RailEnd RailConnection::take_payload(RailPeer& peer, int rail, std::vector<int>* lost,
                                     int64_t* got) {
  std::byte* place = peer.place(rail, head_);
  if (place == nullptr) nowhere_.resize(static_cast<size_t>(kChunkBytes));
  FrameHead next;
  const size_t rest = head_.payload_bytes - in_done_;
  const iovec to[2] = {{place == nullptr ? nowhere_.data() : place + in_done_, rest},
                       {&next, sizeof next}};
  const ssize_t n = readv(fd_, to, 2);
  *got = n;
  if (n < 0 && would_block(errno)) return RailEnd::kNone;
  if (n <= 0) {
    error_ = n < 0 ? errno : 0;
    return RailEnd::kEnded;
  }
  if (static_cast<size_t>(n) < rest) {
    in_done_ += static_cast<size_t>(n);
    return RailEnd::kNone;
  }
  if (place != nullptr && !payload_is_whole(head_, place)) return RailEnd::kDamaged;
  if (!peer.arrived(rail, head_, place, lost)) return RailEnd::kGarbage;
  in_payload_ = false;
  in_done_ = static_cast<size_t>(n) - rest;
  head_ = next;
  return RailEnd::kNone;
}

RailEnd RailConnection::read_frames(RailPeer& peer, int rail, std::vector<int>* lost) {
  for (int64_t bytes = 0; bytes < kMostBytesAtOnce;) {
    int64_t got = 0;
    const RailEnd end =
        in_payload_ ? take_payload(peer, rail, lost, &got) : take_head(peer, rail, lost, &got);
    if (end != RailEnd::kNone) return end;
    if (got <= 0) return RailEnd::kNone;
    peer.heard(rail);
    bytes += got;
  }
  return RailEnd::kNone;
}

RailEnd RailConnection::write_frames(RailPeer& peer, int rail, double now) {
  blocked_ = false;
  for (int frames = 0; frames < kMostFramesAtOnce;) {
    if (!is_writing_ && !peer.next_frame(rail, now, &out_)) return RailEnd::kNone;
    if (!std::exchange(is_writing_, true)) out_done_ = 0;
    const std::byte* payload = peer.payload(out_);
    if (payload == nullptr) return RailEnd::kEnded;  // withdrawn in the middle of it
    const size_t head = sizeof out_.head, all = head + out_.head.payload_bytes,
                 head_done = std::min(out_done_, head), payload_done = out_done_ - head_done;
    iovec from[2] = {{reinterpret_cast<std::byte*>(&out_.head) + head_done, head - head_done},
                     {const_cast<std::byte*>(payload) + payload_done, all - head - payload_done}};
    msghdr message = {};
    message.msg_iov = from;
    message.msg_iovlen = 2;
    const ssize_t n = sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && would_block(errno)) {
      blocked_ = true;
      return RailEnd::kNone;
    }
    if (n <= 0) {
      error_ = errno;
      return RailEnd::kEnded;
    }
    out_done_ += static_cast<size_t>(n);
    is_writing_ = out_done_ < all;
    frames += !is_writing_;
  }
  blocked_ = true;  // come again
  return RailEnd::kNone;
}

}  // namespace moraine
