// A few non-blocking sockets and the little of HTTP/1.1 that a scrape needs.
#include "supervisor/run_metrics_http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace moraine {
namespace {

constexpr int kAcceptedAtOnce = 16;  // of a flood; the next call takes more

// -1 and errno, or a socket that listens.
int listen_at(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int yes = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* at = reinterpret_cast<const sockaddr*>(&address);
  if (::bind(fd, at, sizeof address) == 0 && ::listen(fd, kAcceptedAtOnce) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

std::string answer_of(const char* status, const std::string& body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
      "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
      status, body.size(), body);
}

// `request` is whole: it has its empty line.
std::string answer_to(std::string_view request, const std::function<std::string()>& text) {
  const std::string_view line = request.substr(0, request.find('\r'));
  const size_t first = line.find(' '), second = line.find(' ', first + 1);
  if (second == std::string_view::npos || !line.substr(second + 1).starts_with("HTTP/1."))
    return answer_of("400 Bad Request", "not HTTP/1\n");
  const std::string_view method = line.substr(0, first);
  std::string_view path = line.substr(first + 1, second - first - 1);
  path = path.substr(0, path.find('?'));
  if (method != "GET") return answer_of("405 Method Not Allowed", "GET only\n");
  if (path != "/metrics") return answer_of("404 Not Found", "/metrics is here\n");
  return answer_of("200 OK", text());
}

}  // namespace

RunMetricsHttp::RunMetricsHttp(int port) : listener_(listen_at(port)) {
  if (listener_ < 0)
    throw_error(Code::kIo, "supervise.metrics_port: 127.0.0.1:{}: {}; wanted a port that is free",
                port, std::strerror(errno));
  sockaddr_in address{};
  socklen_t bytes = sizeof address;
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &bytes);
  port_ = ntohs(address.sin_port);
}

RunMetricsHttp::~RunMetricsHttp() {
  for (const Client& client : clients_) ::close(client.fd);
  ::close(listener_);
}

void RunMetricsHttp::add_descriptors(std::vector<pollfd>* polled) const {
  polled->push_back({.fd = listener_, .events = POLLIN, .revents = 0});
  for (const Client& client : clients_) {
    const bool reads = client.answer.empty();
    polled->push_back(
        {.fd = client.fd, .events = static_cast<short>(reads ? POLLIN : POLLOUT), .revents = 0});
  }
}

void RunMetricsHttp::serve(double now, const std::function<std::string()>& text) {
  accept_clients(now);
  for (size_t i = 0; i < clients_.size();) {
    Client& client = clients_[i];
    if (now - client.since < kClientSeconds && move(&client, text)) {
      ++i;
      continue;
    }
    ::close(client.fd);
    clients_.erase(clients_.begin() + static_cast<int64_t>(i));
  }
}

void RunMetricsHttp::accept_clients(double now) {
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    if (clients_.size() >= kClientsMost) {
      ::close(clients_.front().fd);
      clients_.pop_front();
    }
    clients_.push_back({.fd = fd, .since = now, .request = "", .answer = ""});
  }
}

bool RunMetricsHttp::move(Client* client, const std::function<std::string()>& text) {
  while (client->answer.empty()) {
    char buffer[2048];
    const ssize_t n = ::recv(client->fd, buffer, sizeof buffer, 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    client->request.append(buffer, static_cast<size_t>(n));
    if (client->request.find("\r\n\r\n") != std::string::npos)
      client->answer = answer_to(client->request, text);
    else if (client->request.size() > kRequestBytes)
      return false;
  }
  while (client->sent < client->answer.size()) {
    const ssize_t n = ::send(client->fd, client->answer.data() + client->sent,
                             client->answer.size() - client->sent, MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    client->sent += static_cast<size_t>(n);
  }
  ::shutdown(client->fd, SHUT_WR);
  return false;
}

}  // namespace moraine
