// A message that did not move has no ticket, and no peer.
#include "bench/free_transport.h"

#include <algorithm>
#include <cstring>

#include "comm/label.h"

namespace moraine {
namespace {

constexpr size_t kCountBytes = 64 << 10;  // what is gathered or told in less is a count
constexpr int kNobody = -1;

bool is_payload(Operation operation, size_t bytes) {
  switch (operation) {
    case Operation::kMessage:
    case Operation::kAllGather:
    case Operation::kReduceScatter:
    case Operation::kAllToAll:
      return true;
    case Operation::kBroadcast:
    case Operation::kAllGatherEqual:
      return bytes >= kCountBytes;
    default:
      return false;
  }
}

}  // namespace

bool FreeTransport::is_free(int channel, uint64_t label, size_t bytes) const {
  return free_ && of_step_[channel] &&
         is_payload(static_cast<Operation>(static_cast<uint8_t>(label)), bytes);
}

void FreeTransport::name_channel(int channel, const std::string& name) {
  of_step_[channel] =
      name == "shared" || name == "replicas" || name == "experts" || name == "context";
  real_.name_channel(channel, name);
}

SendTicket FreeTransport::send(int peer, int channel, uint64_t label, ConstBytes data,
                               double seconds) {
  if (is_free(channel, label, data.size())) return {};
  return real_.send(peer, channel, label, data, seconds);
}

void FreeTransport::wait_sent(const SendTicket& ticket, double seconds) {
  if (ticket.sequence != 0) real_.wait_sent(ticket, seconds);
}

void FreeTransport::receive(int peer, int channel, uint64_t label, Bytes out, double seconds) {
  if (is_free(channel, label, out.size())) return;
  real_.receive(peer, channel, label, out, seconds);
}

Incoming FreeTransport::open(int peer, int channel, uint64_t label, int64_t bytes, double seconds) {
  if (is_free(channel, label, static_cast<size_t>(bytes)))
    return {.peer = kNobody, .channel = channel, .bytes = bytes};
  return real_.open(peer, channel, label, bytes, seconds);
}

ConstBytes FreeTransport::next(Incoming& message, int64_t bytes, Bytes staging, double seconds) {
  if (message.peer != kNobody) return real_.next(message, bytes, staging, seconds);
  const Bytes zeros = staging.first(static_cast<size_t>(bytes));
  std::fill(zeros.begin(), zeros.end(), std::byte{0});
  return zeros;
}

void FreeTransport::close(Incoming& message) {
  if (message.peer != kNobody) real_.close(message);
}

void FreeTransport::drop(Incoming& message) {
  if (message.peer != kNobody) real_.drop(message);
}

void FreeTransport::withdraw(const SendTicket& ticket, const std::string& reason) {
  if (ticket.sequence != 0) real_.withdraw(ticket, reason);
}

}  // namespace moraine
