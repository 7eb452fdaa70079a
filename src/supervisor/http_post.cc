// Sockets that do not block, with or without OpenSSL above them: the only file of this layer that includes it.
#include "supervisor/http_post.h"

#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/clock.h"
#include "base/error.h"
#include "base/printable.h"

namespace moraine {
namespace {

constexpr size_t kStatusBytes = 4096;  // of an answer, in which its first line must end

[[noreturn]] void fail(const WebhookAddress& a, const std::string& what) {
  throw_error(Code::kIo, "webhook {}:{}: {}", a.host, a.port, what);
}

// One attempt: a socket, perhaps a session on it, and when it must be over.
class PostAttempt {
 public:
  PostAttempt(const WebhookAddress& address, double seconds)
      : address_(address), until_(now_seconds() + seconds) {}
  ~PostAttempt() {
    ::SSL_free(session_);
    ::SSL_CTX_free(context_);
    if (fd_ >= 0) ::close(fd_);
  }
  PostAttempt(const PostAttempt&) = delete;
  PostAttempt& operator=(const PostAttempt&) = delete;

  void connect();
  void begin_session();
  void send(const std::string& text);
  std::string status_line();

 private:
  void wait(short events) {
    const double left = until_ - now_seconds();
    pollfd polled = {.fd = fd_, .events = events, .revents = 0};
    const int ready = left > 0 ? ::poll(&polled, 1, static_cast<int>(left * 1000) + 1) : 0;
    if (ready == 0) throw_error(Code::kTimeout, "webhook {}: no answer in time", address_.host);
  }
  bool try_connect(const addrinfo& to);
  // Waits for what the session needs; fails if that is nothing.
  void wait_for_session(int result, const char* doing);

  const WebhookAddress& address_;
  const double until_;
  int fd_ = -1;
  SSL_CTX* context_ = nullptr;
  SSL* session_ = nullptr;
};

bool PostAttempt::try_connect(const addrinfo& to) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = ::socket(to.ai_family, to.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, to.ai_protocol);
  if (fd_ < 0) return false;
  if (::connect(fd_, to.ai_addr, to.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  wait(POLLOUT);
  int error = 0;
  socklen_t bytes = sizeof error;
  ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &bytes);
  errno = error;
  return error == 0;
}

void PostAttempt::connect() {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address_.port);
  const int error = ::getaddrinfo(address_.host.c_str(), port.c_str(), &wanted, &found);
  if (error != 0) fail(address_, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
  for (const addrinfo* to = found; to != nullptr; to = to->ai_next)
    if (try_connect(*to)) return;
  fail(address_, std::strerror(errno));
}

void PostAttempt::wait_for_session(int result, const char* doing) {
  const int why = ::SSL_get_error(session_, result);
  if (why == SSL_ERROR_WANT_READ) return wait(POLLIN);
  if (why == SSL_ERROR_WANT_WRITE) return wait(POLLOUT);
  const int64_t verified = ::SSL_get_verify_result(session_);
  if (verified != X509_V_OK) fail(address_, ::X509_verify_cert_error_string(verified));
  const char* reason = ::ERR_reason_error_string(::ERR_peek_last_error());
  fail(address_, fmt::format("{}: {}", doing, reason == nullptr ? "it hung up" : reason));
}

void PostAttempt::begin_session() {
  // A process may end while the thread is here: nothing is to be cleared away below it.
  ::OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr);
  context_ = ::SSL_CTX_new(::TLS_client_method());
  if (context_ == nullptr) fail(address_, "no TLS");
  ::SSL_CTX_set_min_proto_version(context_, TLS1_2_VERSION);
  ::SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
  ::SSL_CTX_set_default_verify_paths(context_);
  session_ = ::SSL_new(context_);
  if (session_ == nullptr) fail(address_, "no TLS");
  X509_VERIFY_PARAM* wanted = ::SSL_get0_param(session_);
  const char* host = address_.host.c_str();
  if (::X509_VERIFY_PARAM_set1_ip_asc(wanted, host) != 1) {  // it is a name
    if (::SSL_set1_host(session_, host) != 1) fail(address_, "a name that no certificate can have");
    ::SSL_ctrl(session_, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
               const_cast<char*>(host));
  }
  ::SSL_set_fd(session_, fd_);
  ::ERR_clear_error();  // SSL_get_error looks at what is left there
  for (int result = 0; (result = ::SSL_connect(session_)) != 1;)
    wait_for_session(result, "TLS handshake");
}

void PostAttempt::send(const std::string& text) {
  for (size_t sent = 0; sent < text.size();) {
    const size_t left = text.size() - sent;
    if (session_ != nullptr) {
      const int n = ::SSL_write(session_, text.data() + sent, static_cast<int>(left));
      if (n <= 0)
        wait_for_session(n, "send");
      else
        sent += static_cast<size_t>(n);
      continue;
    }
    const ssize_t n = ::send(fd_, text.data() + sent, left, MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) {
      wait(POLLOUT);
      continue;
    }
    if (n < 0 && errno != EINTR) fail(address_, std::strerror(errno));
    sent += n > 0 ? static_cast<size_t>(n) : 0;
  }
}

std::string PostAttempt::status_line() {
  std::string got;
  while (got.find('\n') == std::string::npos) {
    if (got.size() > kStatusBytes) fail(address_, "an answer that is no HTTP");
    char buffer[1024];
    if (session_ != nullptr) {
      const int n = ::SSL_read(session_, buffer, sizeof buffer);
      if (n <= 0)
        wait_for_session(n, "wait for an answer");
      else
        got.append(buffer, static_cast<size_t>(n));
      continue;
    }
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n == 0) fail(address_, "it hung up");
    if (n < 0 && errno == EAGAIN) {
      wait(POLLIN);
      continue;
    }
    if (n < 0 && errno != EINTR) fail(address_, std::strerror(errno));
    got.append(buffer, n > 0 ? static_cast<size_t>(n) : 0);
  }
  return got.substr(0, got.find_first_of("\r\n"));
}

}  // namespace

void post_json(const WebhookAddress& address, const std::string& json, double seconds) {
  PostAttempt attempt(address, seconds);
  attempt.connect();
  if (address.secure) attempt.begin_session();
  const bool is_v6 = address.host.find(':') != std::string::npos;
  attempt.send(fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}{}{}:{}\r\nUser-Agent: moraine\r\n"
      "Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      address.path, is_v6 ? "[" : "", address.host, is_v6 ? "]" : "", address.port, json.size(),
      json));
  const std::string line = attempt.status_line();
  const bool is_http = line.starts_with("HTTP/1.") && line.size() >= 12 && line[8] == ' ';
  if (!is_http || line[9] != '2')
    fail(address, fmt::format("answered '{}', wanted 2xx", printable(line, 80)));
}

}  // namespace moraine
