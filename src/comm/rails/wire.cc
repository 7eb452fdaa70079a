// Wire: sockets, poll, and loops over what can be moved at once.
#include "comm/rails/wire.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "comm/rails/rail_address.h"

namespace moraine {
namespace {

// False: not in time.
bool wait_for(std::vector<pollfd> fds, double seconds) {
  constexpr double kMostSeconds = 60;  // of one poll, whose time is an int
  const double end = now_seconds() + seconds;
  for (double left = seconds;;) {
    const double turn = std::clamp(left, 0.0, kMostSeconds);
    if (poll(fds.data(), fds.size(), turn > 0 ? static_cast<int>(turn * 1e3) + 1 : 0) > 0)
      return true;
    left = end - now_seconds();
    if (left <= 0) return false;
  }
}

class SocketThread : public WireThread {
 public:
  explicit SocketThread(std::thread thread) : thread_(std::move(thread)) {}
  ~SocketThread() override {
    if (thread_.joinable()) thread_.join();
  }
  void join() override { thread_.join(); }

 private:
  std::thread thread_;
};

class SocketWire : public Wire {
 public:
  double now() override { return now_seconds(); }
  void pause(double seconds) override {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
  std::unique_ptr<WireThread> start(const char* what, std::function<void()> body) override {
    return std::make_unique<SocketThread>(start_thread(what, std::move(body)));
  }

  int listen(const SocketAddress& address) override {
    RailAddress place;
    place.address = address;
    place.interface_name = "rendezvous";
    return listen_on(&place);
  }
  int accept(int listener) override {
    return accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  }
  int reach(const SocketAddress& address, double end) override;
  void close(int link) override { ::close(link); }
  SocketAddress own_address(int link) override {
    SocketAddress own;
    socklen_t bytes = SocketAddress::kMostSize;
    getsockname(link, own.data(), &bytes);
    return own;
  }
  void keep_alive(int link) override;

  int64_t read(int link, void* to, size_t bytes) override {
    const ssize_t n = recv(link, to, bytes, MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
    return n == 0 ? -1 : n;
  }
  int64_t write(int link, const void* from, size_t bytes) override {
    const ssize_t n = send(link, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n >= 0 ? n : errno == EAGAIN || errno == EINTR ? 0 : -1;
  }
  bool wait_to_read(std::span<const int> links, double seconds) override {
    std::vector<pollfd> fds;
    for (const int link : links) fds.push_back({link, POLLIN, 0});
    return wait_for(std::move(fds), seconds);
  }
  bool wait_to_write(int link, double seconds) override {
    return wait_for({{link, POLLOUT, 0}}, seconds);
  }
};

int SocketWire::reach(const SocketAddress& address, double end) {
  const int fd = socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) throw_error(Code::kIo, "rendezvous: make a socket: {}", std::strerror(errno));
  const bool has_begun = connect(fd, address.data(), address.size()) == 0 || errno == EINPROGRESS;
  int error = 0;
  socklen_t bytes = sizeof error;
  if (has_begun && wait_to_write(fd, end - now()) &&
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error == 0)
    return fd;
  ::close(fd);
  return -1;
}

void SocketWire::keep_alive(int fd) {
  const int on = 1, idle_seconds = 10, interval_seconds = 5, probes = 4;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof idle_seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_seconds, sizeof interval_seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

}  // namespace

Wire& socket_wire() {
  static SocketWire wire;
  return wire;
}

bool send_all(Wire& wire, int link, const void* data, size_t bytes, double end) {
  for (size_t done = 0; done < bytes;) {
    const int64_t n = wire.write(link, static_cast<const char*>(data) + done, bytes - done);
    if (n > 0) done += static_cast<size_t>(n);
    if (n < 0 || (n == 0 && !wire.wait_to_write(link, end - wire.now()))) return false;
  }
  return true;
}

bool receive_all(Wire& wire, int link, void* data, size_t bytes, double end) {
  for (size_t done = 0; done < bytes;) {
    const int64_t n = wire.read(link, static_cast<char*>(data) + done, bytes - done);
    if (n > 0) done += static_cast<size_t>(n);
    const int links[] = {link};
    if (n < 0 || (n == 0 && !wire.wait_to_read(links, end - wire.now()))) return false;
  }
  return true;
}

}  // namespace moraine
