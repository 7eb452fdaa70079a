// TimedIo: poll, then what can be done at once.
#include "comm/rails/timed_io.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"

namespace moraine {
namespace {

// Waits until fd is ready for `events`. False: not in time.
bool wait_for(int fd, short events, double end) {
  constexpr double kMostSeconds = 60;  // of one poll, whose time is an int
  for (double left = end - now_seconds(); left > 0; left = end - now_seconds()) {
    pollfd p = {fd, events, 0};
    const int ready = poll(&p, 1, static_cast<int>(std::min(left, kMostSeconds) * 1e3) + 1);
    if (ready > 0) return true;
  }
  return false;
}

}  // namespace

bool send_all(int fd, const void* data, size_t bytes, double end) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n =
        send(fd, static_cast<const char*>(data) + done, bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) done += static_cast<size_t>(n);
    const bool is_full = n < 0 && (errno == EAGAIN || errno == EINTR);
    if (n <= 0 && (!is_full || !wait_for(fd, POLLOUT, end))) return false;
  }
  return true;
}

bool receive_all(int fd, void* data, size_t bytes, double end) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = recv(fd, static_cast<char*>(data) + done, bytes - done, MSG_DONTWAIT);
    if (n > 0) done += static_cast<size_t>(n);
    const bool is_empty = n < 0 && (errno == EAGAIN || errno == EINTR);
    if (n <= 0 && (!is_empty || !wait_for(fd, POLLIN, end))) return false;
  }
  return true;
}

bool is_readable(int fd, double seconds) { return wait_for(fd, POLLIN, now_seconds() + seconds); }

int reach(const sockaddr_in& address, double end) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) throw_error(Code::kIo, "rendezvous: make a socket: {}", std::strerror(errno));
  const bool has_begun =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
      errno == EINPROGRESS;
  int error = 0;
  socklen_t bytes = sizeof error;
  if (has_begun && wait_for(fd, POLLOUT, end) &&
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error == 0)
    return fd;
  close(fd);
  return -1;
}

void keep_alive(int fd) {
  const int on = 1, idle_seconds = 10, interval_seconds = 5, probes = 4;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof idle_seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_seconds, sizeof interval_seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

}  // namespace moraine
