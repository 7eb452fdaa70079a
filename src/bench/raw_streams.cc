// RawStreams: blocking sockets.
#include "bench/raw_streams.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include "base/error.h"
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

int accept_one(int listener) {
  for (;;) {
    const int fd = accept(listener, nullptr, nullptr);
    if (fd >= 0) return fd;
    check(errno == EAGAIN || errno == EINTR, "accept");
    usleep(1000);
  }
}

int connect_to(SocketAddress from, const SocketAddress& to) {
  const int fd = socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  from.set_port(0);
  check(fd >= 0 && bind(fd, from.data(), from.size()) == 0, "bind");
  check(connect(fd, to.data(), to.size()) == 0, "connect");
  return fd;
}

}  // namespace

RawStreams::RawStreams(Transport& transport, const std::vector<std::string>& rails)
    : is_sender_(transport.rank() == 0), pool_(static_cast<int>(rails.size())) {
  Communicator both(transport, all_ranks(transport), 1, "streams", 60);
  std::vector<RailAddress> own;
  for (const std::string& rail : rails) own.push_back(find_rail_address(rail));
  std::vector<int> listeners;
  std::string mine;
  for (RailAddress& rail : own) {
    if (!is_sender_) listeners.push_back(listen_on(&rail));
    mine += address_text(rail.address) + " ";
  }
  std::istringstream theirs(all_gather_text(both, mine).back());
  for (size_t i = 0; i < own.size(); ++i) {
    std::string address;
    theirs >> address;
    fds_.push_back(is_sender_ ? connect_to(own[i].address, parse_address(address))
                              : accept_one(listeners[i]));
    set_up(fds_.back());
  }
  for (const int listener : listeners) close(listener);
}

RawStreams::~RawStreams() {
  for (const int fd : fds_) close(fd);
}

void RawStreams::transfer(std::vector<std::byte>& data) {
  const size_t n = fds_.size();
  std::vector<char> ok(n, 0);
  const auto move_part = [&](size_t i) {
    const size_t begin = data.size() * i / n, end = data.size() * (i + 1) / n;
    std::byte answer{1};
    ok[i] = move_all(fds_[i], data.data() + begin, end - begin, is_sender_) &&
            move_all(fds_[i], &answer, 1, !is_sender_);
  };
  pool_.parallel_for(count(), [&](int64_t i, int) { move_part(static_cast<size_t>(i)); });
  for (const char each : ok) {
    if (each == 0) throw_error(Code::kPeerLost, "raw streams: the other end is gone");
  }
}

void RawStreams::ping() {
  std::byte word[8] = {};
  const bool ok = move_all(fds_[0], word, sizeof word, is_sender_) &&
                  move_all(fds_[0], word, sizeof word, !is_sender_);
  if (!ok) throw_error(Code::kPeerLost, "raw streams: the other end is gone");
}

}  // namespace moraine
