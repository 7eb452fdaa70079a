// TestClient: a blocking client of one connection, for tests over real sockets.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

namespace moraine::testing {

class TestClient {
 public:
  explicit TestClient(int64_t port, int receive_bytes = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_bytes > 0)
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~TestClient() { close(); }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  // Ends the connection with a reset, as a machine does that lost its network.
  void reset() {
    const linger now{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }
  void end_output() { ::shutdown(fd_, SHUT_WR); }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // More bytes into buffer; false at the end, or if nothing comes for long.
  bool receive() {
    pollfd wait{fd_, POLLIN, 0};
    if (::poll(&wait, 1, 60'000) <= 0) return false;
    char chunk[65536];
    const ssize_t got = ::recv(fd_, chunk, sizeof chunk, 0);
    if (got <= 0) return false;
    buffer.append(chunk, static_cast<size_t>(got));
    return true;
  }
  // Whether there is something to receive now.
  bool has_bytes() const {
    pollfd wait{fd_, POLLIN, 0};
    return !buffer.empty() || ::poll(&wait, 1, 0) > 0;
  }
  // Reads until `text` has come; what came before it and itself leave the buffer.
  std::string until(std::string_view text) {
    size_t at;
    while ((at = buffer.find(text)) == std::string::npos) {
      if (!receive()) return "";
    }
    const std::string got = buffer.substr(0, at + text.size());
    buffer.erase(0, at + text.size());
    return got;
  }
  std::string all() {
    while (receive()) {
    }
    return std::move(buffer);
  }

  struct Answer {
    int status = 0;
    std::string head, body;
  };
  // One answer with a length or in chunks.
  Answer answer() {
    Answer answer;
    answer.head = until("\r\n\r\n");
    if (answer.head.size() < 12) return answer;
    answer.status = std::stoi(answer.head.substr(9, 3));
    if (answer.head.find("transfer-encoding: chunked") != std::string::npos) {
      for (;;) {
        const std::string size = until("\r\n");
        if (size.empty()) return answer;
        const size_t bytes = std::stoul(size, nullptr, 16);
        answer.body += take(bytes);
        take(2);
        if (bytes == 0) return answer;
      }
    }
    const size_t at = answer.head.find("content-length: ");
    if (at != std::string::npos) answer.body = take(std::stoul(answer.head.substr(at + 16)));
    return answer;
  }
  Answer get(const std::string& path) {
    send("GET " + path + " HTTP/1.1\r\nhost: localhost\r\n\r\n");
    return answer();
  }
  Answer post(const std::string& path, const std::string& body, const std::string& fields = "") {
    send_post(path, body, fields);
    return answer();
  }
  // Without waiting for the answer.
  void send_post(const std::string& path, const std::string& body, const std::string& fields = "") {
    send("POST " + path + " HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n" +
         fields + "content-length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  std::string take(size_t bytes) {
    while (buffer.size() < bytes && receive()) {
    }
    const std::string got = buffer.substr(0, bytes);
    buffer.erase(0, bytes);
    return got;
  }

  std::string buffer;  // received and not taken

 private:
  int fd_ = -1;
  bool connected_ = false;
};

}  // namespace moraine::testing
