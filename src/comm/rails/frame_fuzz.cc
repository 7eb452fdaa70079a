// Fuzz: what a peer may say on a rail; hashes are made to fit, or nothing behind them would be looked at.
//
// The first byte chooses: a peer with small chunks between calls of the program that the bytes choose too, a connection
// that gets them as frames, or as a hello.
#include "comm/rails/frame.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "comm/rails/rail_connection.h"
#include "comm/rails/rail_peer.h"
#include "testing/fuzz.h"

namespace moraine {
namespace {

constexpr uint32_t kGeneration = 7;
constexpr int kRails = 2, kChannels = 2;
constexpr int64_t kSmallChunk = 64;

struct Source {  // of decisions; zeros when the input is at its end
  std::string_view left;
  bool is_empty() const { return left.empty(); }
  uint8_t byte() {
    if (left.empty()) return 0;
    const uint8_t b = static_cast<uint8_t>(left.front());
    left.remove_prefix(1);
    return b;
  }
  int below(int most) { return byte() % most; }
  // Mostly small: all numbers of eight bytes behind one that is 255.
  uint64_t number() {
    const uint8_t b = byte();
    if (b != 255) return b;
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }
};

// A frame that may be, or nearly so: three bytes, and more for what is odd about it.
FrameHead draw_head(Source& in, int64_t chunk_bytes) {
  const FrameKind kinds[] = {FrameKind::kAcknowledge, FrameKind::kTaken, FrameKind::kGrant};
  const int kind = in.below(8), which = in.byte(), odd = in.byte();
  FrameHead head;
  head.generation = kGeneration;
  head.kind = kind < 3 ? kinds[kind] : kind == 7 ? FrameKind{in.byte()} : FrameKind::kData;
  head.channel = static_cast<uint8_t>(which % kChannels);
  head.is_urgent = which & 1;
  head.message = 1 + static_cast<uint64_t>(which / kChannels % 16);
  uint64_t bytes = head.message % 2 * (head.message * 37 % 40 * 64) + head.message % 3 * 16;
  const uint64_t chunk = static_cast<uint64_t>(chunk_bytes);
  uint64_t offset = kind == 3 ? 0 : in.byte() % 64 * chunk;
  if (odd & 1) head.received = in.number();
  if (odd == 2) head.message = in.number();
  if (odd == 4) bytes = in.number() * 16;
  if (odd == 6) offset = in.number() * in.byte();
  if (odd == 8) head.label = in.number();
  if (odd == 10) head.channel = in.byte();
  head.bytes = static_cast<int64_t>(bytes);
  head.offset = static_cast<int64_t>(offset);
  const int64_t fits = std::clamp<int64_t>(static_cast<int64_t>(bytes - offset), 0, chunk_bytes);
  head.payload_bytes = static_cast<uint32_t>(head.kind == FrameKind::kData ? fits : 0);
  if (odd == 12) head.payload_bytes = static_cast<uint32_t>(in.number());
  return head;
}

// The program on top of a peer: it keeps the rules that lanes.h sets it, and touches all memory that it is shown.
class Program {
 public:
  explicit Program(Lanes& lanes) : lanes_(lanes) {}

  void act(Source& in) {
    const int channel = in.below(kChannels);
    switch (in.below(5)) {
      case 0:
        return send(channel, static_cast<size_t>(in.byte()) * 8);
      case 1:
        return open(channel, in.byte() & 1);
      case 2:
        return read(channel, in.byte());
      case 3:
        if (std::exchange(is_open_[channel], false)) lanes_.close(channel);
        out_[channel] = {};
        return;
      default:
        return withdraw();
    }
  }
  // Memory of what is sent belongs to the program again.
  void tidy() {
    std::erase_if(memory_,
                  [this](const auto& m) { return lanes_.is_sent(m.first.first, m.first.second); });
  }

 private:
  void send(int channel, size_t bytes) {
    if (!lanes_.has_room(channel)) return;
    std::vector<std::byte> data(bytes, std::byte{42});
    const uint64_t number = lanes_.send(channel, 1, data);
    if (static_cast<int64_t>(bytes) > lanes_.copied_bytes())
      memory_.emplace(std::pair(channel, number), std::move(data));
  }
  void open(int channel, bool whole) {
    MessageHead head;
    if (is_open_[channel] || !lanes_.has_next(channel, &head)) return;
    if (head.bytes > 1 << 16) return;  // not what the program waits for: that ends the job
    out_[channel].assign(whole ? static_cast<size_t>(head.bytes) : 0, std::byte{0});
    lanes_.open(channel, out_[channel]);
    is_open_[channel] = true;
    at_[channel] = 0;
  }
  void read(int channel, int64_t most) {
    if (!is_open_[channel] || !out_[channel].empty()) return;
    const int64_t n = std::min(most, lanes_.arrived(channel) - at_[channel]);
    for (const int64_t end = at_[channel] + n; at_[channel] < end;) {
      const ConstBytes view = lanes_.window(channel, at_[channel]);
      if (view.empty()) std::abort();
      at_[channel] += static_cast<int64_t>(view.size());
      sum_ += std::to_integer<int>(view.front()) + std::to_integer<int>(view.back());
    }
    if (sum_ < 0) std::abort();  // it is looked at
    lanes_.release(channel, at_[channel]);
  }
  void withdraw() {
    if (memory_.empty()) return;
    const auto first = memory_.begin();
    lanes_.withdraw(first->first.first, first->first.second);
    memory_.erase(first);
  }

  Lanes& lanes_;
  std::map<std::pair<int, uint64_t>, std::vector<std::byte>> memory_;
  std::array<std::vector<std::byte>, kChannels> out_;
  bool is_open_[kChannels] = {};
  int64_t at_[kChannels] = {};
  int64_t sum_ = 0;
};

// What rail_connection.cc does with a peer, but for the socket.
class Rail {
 public:
  Rail(RailPeer& peer, int rail) : peer_(peer), rail_(rail) {}

  void act(Source& in, double now) {
    if (peer_.state(rail_) == RailState::kClosed) {
      in_payload_ = is_writing_ = false;
      return peer_.rail_opened(rail_, ++connections_ * kRails + static_cast<uint64_t>(rail_), now);
    }
    std::vector<int> lost;
    const bool goes_on = in.byte() & 1 ? write(in, now)
                         : in_payload_ ? take_payload(in.number(), &lost)
                                       : take_head(in, &lost);
    if (!goes_on) lost.push_back(rail_);
    for (const int r : lost) peer_.rail_closed(r, now);
  }

 private:
  bool take_head(Source& in, std::vector<int>* lost) {
    peer_.heard(rail_);
    head_ = draw_head(in, kSmallChunk);
    payload_.assign(std::min<size_t>(head_.payload_bytes, 1 << 12), std::byte{in.byte()});
    if (payload_.size() < head_.payload_bytes) head_.payload_bytes = 1 << 12;
    seal_frame(head_, payload_.data());
    if (check_head(head_, kGeneration, kSmallChunk) != HeadFault::kNone) return false;
    if (!peer_.accepts(head_)) return false;
    done_ = 0;
    in_payload_ = head_.payload_bytes > 0;
    return in_payload_ || peer_.arrived(rail_, head_, nullptr, lost);
  }
  bool take_payload(uint64_t most, std::vector<int>* lost) {
    std::byte* place = peer_.place(head_);
    const size_t n = std::min<size_t>(most, head_.payload_bytes - done_);
    if (place != nullptr) std::memcpy(place + done_, payload_.data() + done_, n);
    done_ += n;
    if (done_ < head_.payload_bytes) return true;
    in_payload_ = false;
    if (place != nullptr && !payload_is_whole(head_, place)) return false;
    return peer_.arrived(rail_, head_, place, lost);
  }
  // A frame may stay half written between two calls.
  bool write(Source& in, double now) {
    if (!is_writing_ && !peer_.next_frame(rail_, now, &out_)) return true;
    is_writing_ = true;
    const std::byte* payload = peer_.payload(out_);
    if (payload == nullptr) return false;
    is_writing_ = in.byte() & 1;
    return is_writing_ || payload_is_whole(out_.head, payload);
  }

  RailPeer& peer_;
  const int rail_;
  uint64_t connections_ = 0;
  bool in_payload_ = false, is_writing_ = false;
  FrameHead head_;
  std::vector<std::byte> payload_;
  size_t done_ = 0;
  Outbound out_;
};

void fuzz_peer(Source in) {
  RailPeer peer(kRails, kGeneration, RailTimes{}, kSmallChunk);
  Program program(peer.lanes());
  Rail rails[kRails] = {Rail(peer, 0), Rail(peer, 1)};
  for (double now = 0; !in.is_empty(); now += 1e-3) {
    switch (in.below(8)) {
      case 0:
        for (const int rail : peer.tick(now += in.byte() * 1e-3)) peer.rail_closed(rail, now);
        break;
      case 1:
        peer.rail_closed(in.below(kRails), now);
        break;
      case 2:
        in.byte() & 1 ? peer.send_fault("it failed") : peer.send_goodbye();
        break;
      case 3:
      case 4:
        program.act(in);
        break;
      default:
        rails[in.below(kRails)].act(in, now);
    }
    program.tidy();
  }
}

// An acceptor and the other end of its socket.
struct Accepted {
  const std::string secret;
  int ends[2] = {-1, -1};
  std::unique_ptr<RailConnection> connection;
  explicit Accepted(std::string its_secret) : secret(std::move(its_secret)) {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) std::abort();
    const RailConnection::Place place = {{1, kGeneration, 0, 2, kRails}, &secret};
    connection = std::make_unique<RailConnection>(place, ends[0]);
  }
  ~Accepted() { close(ends[1]); }
  void say(const void* data, size_t bytes) {
    if (write(ends[1], data, bytes) < 0) return;  // full: the rest is for another input
  }
};

void fuzz_hello(Source in) {
  Accepted accepted("secret");
  while (!in.is_empty()) {
    const std::string_view part = in.left.substr(0, 1 + in.byte());
    accepted.say(part.data(), part.size());
    in.left.remove_prefix(std::min(in.left.size(), part.size()));
    if (accepted.connection->shake_hands() != RailEnd::kNone) return;
  }
  if (accepted.connection->is_open()) std::abort();  // it does not know the secret
}

void fuzz_connection(Source in) {
  Accepted accepted("");  // else no frame would pass
  Hello hello;
  hello.run = 1;
  hello.generation = kGeneration;
  hello.from = 1;
  struct {
    Hello hello;
    RailProof proof;
  } answer;
  accepted.say(&hello, sizeof hello);
  if (accepted.connection->shake_hands() != RailEnd::kNone ||
      read(accepted.ends[1], &answer, sizeof answer) != sizeof answer)
    std::abort();
  const RailProof proof = prove_hello(accepted.secret, HelloPart::kConnector, hello, answer.hello);
  accepted.say(&proof, sizeof proof);
  if (accepted.connection->shake_hands() != RailEnd::kNone || !accepted.connection->is_open())
    std::abort();
  RailPeer peer(kRails, kGeneration, RailTimes{});
  Program program(peer.lanes());
  peer.rail_opened(0, 1, 0);
  const std::vector<std::byte> payload(4096, std::byte{1});
  while (!in.is_empty()) {
    FrameHead head = draw_head(in, kChunkBytes);
    head.payload_bytes = std::min<uint32_t>(head.payload_bytes, 4096);
    seal_frame(head, payload.data());
    accepted.say(&head, sizeof head);
    accepted.say(payload.data(), std::min<size_t>(head.payload_bytes, in.byte() * 32));
    std::vector<int> lost;
    if (accepted.connection->read_frames(peer, 0, &lost) != RailEnd::kNone || !lost.empty()) return;
    if (in.byte() & 1) program.act(in);
    program.tidy();
  }
}

}  // namespace

void fuzz_one(std::string_view input) {
  Source in{input};
  switch (in.below(4)) {
    case 0:
      return fuzz_hello(in);
    case 1:
      return fuzz_connection(in);
    default:
      return fuzz_peer(in);
  }
}

}  // namespace moraine
