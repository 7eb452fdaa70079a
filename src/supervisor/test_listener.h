// TestListener: a server on 127.0.0.1 that gives each client one fixed answer, or none.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace moraine::testing {

class TestListener {
 public:
  // An empty answer: the connection stays open and nothing comes. `certificate`, `key`: files, of https.
  explicit TestListener(std::string answer, const std::string& certificate = "",
                        const std::string& key = "")
      : answer_(std::move(answer)), fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    socklen_t bytes = sizeof address;
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* at = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(fd_, at, bytes), 0);
    EXPECT_EQ(::listen(fd_, 64), 0);
    ::getsockname(fd_, at, &bytes);
    port_ = ntohs(address.sin_port);
    if (!certificate.empty()) {
      context_ = ::SSL_CTX_new(::TLS_server_method());
      EXPECT_EQ(::SSL_CTX_use_certificate_chain_file(context_, certificate.c_str()), 1);
      EXPECT_EQ(::SSL_CTX_use_PrivateKey_file(context_, key.c_str(), SSL_FILETYPE_PEM), 1);
    }
    thread_ = std::thread([this] { work(); });
  }
  ~TestListener() {
    ending_ = true;
    thread_.join();
    for (const int fd : held_) ::close(fd);
    ::close(fd_);
    ::SSL_CTX_free(context_);
  }
  TestListener(const TestListener&) = delete;
  TestListener& operator=(const TestListener&) = delete;

  int port() const { return port_; }
  void wait_for_requests(size_t count) {
    while (requests().size() < count) std::this_thread::yield();
  }
  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  bool comes(int fd) const {
    while (!ending_) {
      pollfd polled = {.fd = fd, .events = POLLIN, .revents = 0};
      if (::poll(&polled, 1, 5) > 0) return true;
    }
    return false;
  }
  void work() {
    std::signal(SIGPIPE, SIG_IGN);
    while (comes(fd_)) {
      const int client = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) continue;
      held_.push_back(client);
      if (!answer_.empty()) serve(client);
    }
  }
  void serve(int client) {
    SSL* session = nullptr;
    if (context_ != nullptr) {
      session = ::SSL_new(context_);
      ::SSL_set_fd(session, client);
      if (::SSL_accept(session) != 1) return close(session, client);
    }
    std::string got;
    char buffer[4096];
    while (got.empty() || got.back() != '}') {  // JSON is its end
      if (session == nullptr && !comes(client)) break;
      const auto n = session == nullptr ? ::recv(client, buffer, sizeof buffer, 0)
                                        : ::SSL_read(session, buffer, sizeof buffer);
      if (n <= 0) return close(session, client);
      got.append(buffer, static_cast<size_t>(n));
    }
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(got);
    }
    if (session == nullptr)
      ::send(client, answer_.data(), answer_.size(), MSG_NOSIGNAL);
    else
      ::SSL_write(session, answer_.data(), static_cast<int>(answer_.size()));
    close(session, client);
  }
  static void close(SSL* session, int client) {
    ::SSL_free(session);
    ::shutdown(client, SHUT_RDWR);
  }

  const std::string answer_;
  const int fd_;
  int port_ = 0;
  SSL_CTX* context_ = nullptr;
  std::atomic<bool> ending_ = false;
  std::vector<int> held_;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace moraine::testing
