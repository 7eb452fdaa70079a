// RawStreams: blocking sockets.
#include "bench/raw_streams.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include "base/clock.h"
#include "base/error.h"
#include "bench/between_ranks.h"
#include "comm/all_ranks.h"
#include "comm/collectives.h"
#include "comm/rails/rail_address.h"

namespace moraine {
namespace {

void check(bool ok, const char* doing) {
  if (!ok) throw_error(Code::kIo, "raw streams: {}: {}", doing, std::strerror(errno));
}

bool move_all(int fd, std::byte* data, size_t bytes, bool out) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = out ? send(fd, data + done, bytes - done, MSG_NOSIGNAL)
                          : recv(fd, data + done, bytes - done, 0);
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

void set_up(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

OpenSocket accept_one(const OpenSocket& listener) {
  const double end = now_seconds() + kBenchDeadline;
  for (;;) {
    OpenSocket socket(accept(listener.fd(), nullptr, nullptr));
    if (socket.fd() >= 0) return socket;
    check(errno == EAGAIN || errno == EINTR, "accept");
    if (now_seconds() > end)
      throw_error(Code::kTimeout, "raw streams: rank 0 has not connected in {} seconds",
                  kBenchDeadline);
    usleep(1000);
  }
}

OpenSocket connect_to(SocketAddress from, const SocketAddress& to) {
  OpenSocket own(socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  from.set_port(0);
  check(own.fd() >= 0 && bind(own.fd(), from.data(), from.size()) == 0, "bind");
  check(connect(own.fd(), to.data(), to.size()) == 0, "connect");
  return own;
}

}  // namespace

OpenSocket::~OpenSocket() {
  if (fd_ >= 0) close(fd_);
}

RawStreams::RawStreams(Transport& transport, const std::vector<std::string>& rails)
    : is_sender_(transport.rank() == 0), pool_(static_cast<int>(rails.size())) {
  Communicator both(transport, all_ranks(transport), 1, "streams", kBenchDeadline);
  std::vector<RailAddress> own;
  for (const std::string& rail : rails) own.push_back(find_rail_address(rail));
  std::vector<OpenSocket> listeners;
  std::string mine;
  for (RailAddress& rail : own) {
    if (!is_sender_) listeners.emplace_back(listen_on(&rail));
    mine += address_text(rail.address) + " ";
  }
  std::istringstream theirs(all_gather_text(both, mine).back());
  for (size_t i = 0; i < own.size(); ++i) {
    std::string address;
    theirs >> address;
    sockets_.push_back(is_sender_ ? connect_to(own[i].address, parse_address(address))
                                  : accept_one(listeners[i]));
    set_up(sockets_.back().fd());
  }
}

void RawStreams::transfer(std::vector<std::byte>& data) {
  const size_t n = sockets_.size();
  std::vector<char> ok(n, 0);
  const auto move_part = [&](size_t i) {
    const size_t begin = data.size() * i / n, end = data.size() * (i + 1) / n;
    std::byte answer{1};
    const int fd = sockets_[i].fd();
    ok[i] = move_all(fd, data.data() + begin, end - begin, is_sender_) &&
            move_all(fd, &answer, 1, !is_sender_);
  };
  pool_.parallel_for(count(), [&](int64_t i, int) { move_part(static_cast<size_t>(i)); });
  for (const char each : ok) {
    if (each == 0) throw_error(Code::kPeerLost, "raw streams: the other end is gone");
  }
}

void RawStreams::ping() {
  std::byte word[8] = {};
  const int fd = sockets_[0].fd();
  const bool ok =
      move_all(fd, word, sizeof word, is_sender_) && move_all(fd, word, sizeof word, !is_sender_);
  if (!ok) throw_error(Code::kPeerLost, "raw streams: the other end is gone");
}

}  // namespace moraine
