// RailConnection: reads and writes as much as the socket allows.
#include "comm/rails/rail_connection.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
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

void set_up(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

uint64_t head_number(uint64_t frame) { return 2 * frame; }
uint64_t payload_number(uint64_t frame) { return 2 * frame + 1; }

// All but the tag that it gets.
template <class SealedHead>
std::span<const std::byte> signed_part(const SealedHead& sealed) {
  return std::as_bytes(std::span(&sealed, 1)).first(offsetof(SealedHead, tag));
}

}  // namespace

RailConnection::RailConnection(const Place& place, const Hello& hello, const SocketAddress& local,
                               const SocketAddress& remote)
    : place_(place), is_connector_(true), state_(State::kConnecting), mine_(hello) {
  mine_.nonce = make_nonce();
  std::memcpy(&mine_.connection, mine_.nonce.data(), sizeof mine_.connection);
  fd_ = socket(remote.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd_ < 0) return;
  set_up(fd_);
  SocketAddress from = local;
  from.set_port(0);
  const bool ok = bind(fd_, from.data(), from.size()) == 0 &&
                  (connect(fd_, remote.data(), remote.size()) == 0 || errno == EINPROGRESS);
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
  open();
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
  open();
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

void RailConnection::open() {
  state_ = State::kOpen;
  if (place_.secret->empty()) return;
  const auto sealer_of = [this](HelloPart part) {
    return std::make_unique<RailSealer>(
        prove_hello(*place_.secret, part, connector_hello(), acceptor_hello()));
  };
  std::unique_ptr<RailSealer> connectors = sealer_of(HelloPart::kConnectorFrames),
                              acceptors = sealer_of(HelloPart::kAcceptorFrames);
  out_seal_ = std::move(is_connector_ ? connectors : acceptors);
  in_seal_ = std::move(is_connector_ ? acceptors : connectors);
}

RailEnd RailConnection::take_head(RailPeer& peer, int rail, std::vector<int>* lost) {
  std::memcpy(&sealed_in_, buffer_.data() + buffer_begin_, head_bytes());
  buffer_begin_ += head_bytes();
  head_ = sealed_in_.head;
  if (in_seal_ != nullptr &&
      !in_seal_->fits(sealed_in_.tag, head_number(frames_in_++), signed_part(sealed_in_)))
    return RailEnd::kDamaged;
  const HeadFault fault = check_head(head_, place_.hello.generation);
  if (fault == HeadFault::kHash) return RailEnd::kDamaged;
  if (fault != HeadFault::kNone || !peer.accepts(head_)) return RailEnd::kGarbage;
  if (head_.payload_bytes == 0) {
    if (!peer.arrived(rail, head_, nullptr, lost)) return RailEnd::kGarbage;
  } else {
    in_payload_ = true;
    in_done_ = 0;
  }
  return RailEnd::kNone;
}

RailEnd RailConnection::finish_payload(RailPeer& peer, int rail, std::vector<int>* lost) {
  const std::byte* place = peer.place(head_);
  if (place != nullptr && !payload_is_whole(head_, place)) return RailEnd::kDamaged;
  if (place != nullptr && in_seal_ != nullptr &&
      !in_seal_->fits(sealed_in_.payload_tag, payload_number(frames_in_ - 1),
                      {place, head_.payload_bytes}))
    return RailEnd::kDamaged;
  if (!peer.arrived(rail, head_, place, lost)) return RailEnd::kGarbage;
  in_payload_ = false;
  return RailEnd::kNone;
}

RailEnd RailConnection::take_buffered(RailPeer& peer, int rail, std::vector<int>* lost) {
  RailEnd end = RailEnd::kNone;
  while (end == RailEnd::kNone) {
    if (!in_payload_) {
      if (buffered() < head_bytes()) return end;
      end = take_head(peer, rail, lost);
      continue;
    }
    const size_t n = std::min<size_t>(buffered(), head_.payload_bytes - in_done_);
    std::byte* place = peer.place(head_);
    if (place != nullptr && n > 0) std::memcpy(place + in_done_, buffer_.data() + buffer_begin_, n);
    buffer_begin_ += n;
    in_done_ += n;
    if (in_done_ < head_.payload_bytes) return end;
    end = finish_payload(peer, rail, lost);
  }
  return end;
}

// The rest of a payload goes to its place, what follows into the buffer, in one call of the kernel.
RailEnd RailConnection::fill(RailPeer& peer, int64_t* got) {
  std::memmove(buffer_.data(), buffer_.data() + buffer_begin_, buffered());
  buffer_end_ -= std::exchange(buffer_begin_, 0);
  const size_t rest = in_payload_ ? head_.payload_bytes - in_done_ : 0;
  std::byte* place = in_payload_ ? peer.place(head_) : nullptr;
  if (in_payload_ && place == nullptr) nowhere_.resize(static_cast<size_t>(kChunkBytes));
  const iovec to[2] = {{place == nullptr ? nowhere_.data() : place + in_done_, rest},
                       {buffer_.data() + buffer_end_, buffer_.size() - buffer_end_}};
  const ssize_t n = readv(fd_, to, 2);
  is_drained_ = n < static_cast<ssize_t>(rest + to[1].iov_len);
  if (n < 0 && would_block(errno)) return RailEnd::kNone;
  if (n <= 0) {
    error_ = n < 0 ? errno : 0;
    return RailEnd::kEnded;
  }
  *got = n;
  const size_t in_place = std::min(rest, static_cast<size_t>(n));
  in_done_ += in_place;
  buffer_end_ += static_cast<size_t>(n) - in_place;
  return RailEnd::kNone;
}

RailEnd RailConnection::read_frames(RailPeer& peer, int rail, std::vector<int>* lost) {
  is_drained_ = false;
  for (int64_t bytes = 0;;) {
    RailEnd end = take_buffered(peer, rail, lost);
    if (end != RailEnd::kNone || is_drained_ || bytes >= kMostBytesAtOnce) return end;
    int64_t got = 0;
    end = fill(peer, &got);
    if (end != RailEnd::kNone) return end;
    if (got > 0) peer.heard(rail);
    bytes += got;
  }
}

void RailConnection::begin_frame(const std::byte* payload) {
  out_done_ = 0;
  sealed_out_ = {.head = out_.head};
  if (out_seal_ == nullptr) return;
  const uint64_t number = frames_out_++;
  if (out_.head.payload_bytes > 0)
    sealed_out_.payload_tag =
        out_seal_->tag(payload_number(number), {payload, out_.head.payload_bytes});
  sealed_out_.tag = out_seal_->tag(head_number(number), signed_part(sealed_out_));
}

RailEnd RailConnection::write_frame(RailPeer& peer, int rail, double now, bool* wrote) {
  blocked_ = false;
  *wrote = false;
  if (!is_writing_ && !peer.next_frame(rail, now, &out_)) return RailEnd::kNone;
  const std::byte* payload = peer.payload(out_);
  if (payload == nullptr) return RailEnd::kEnded;  // withdrawn in the middle of it
  if (!std::exchange(is_writing_, true)) begin_frame(payload);
  const size_t head = head_bytes(), all = head + out_.head.payload_bytes,
               head_done = std::min(out_done_, head), payload_done = out_done_ - head_done;
  iovec from[2] = {{reinterpret_cast<std::byte*>(&sealed_out_) + head_done, head - head_done},
                   {const_cast<std::byte*>(payload) + payload_done, all - head - payload_done}};
  msghdr message = {};
  message.msg_iov = from;
  message.msg_iovlen = 2;
  const ssize_t n = sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0 && !would_block(errno)) {
    error_ = errno;
    return RailEnd::kEnded;
  }
  if (n > 0) out_done_ += static_cast<size_t>(n);
  is_writing_ = out_done_ < all;
  blocked_ = is_writing_;  // the rest when the socket has room again
  *wrote = !is_writing_;
  return RailEnd::kNone;
}

}  // namespace moraine
