// TestGuest: a connection to a listener that says whatever a test wants it to say.
//
// Errors:  what the listener should do and does not within kGuestSeconds is false.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "comm/rails/frame.h"
#include "comm/rails/hello.h"
#include "comm/rails/socket_address.h"

namespace moraine {

class TestGuest {
 public:
  static constexpr int kGuestSeconds = 10;

  explicit TestGuest(const SocketAddress& to)
      : fd_(socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    MR_CHECK(connect(fd_, to.data(), to.size()) == 0);
  }
  explicit TestGuest(int fd) : fd_(fd) {}  // accepted
  ~TestGuest() {
    if (fd_ >= 0) close(fd_);
  }
  TestGuest(TestGuest&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), sealer_(std::move(other.sealer_)) {}
  TestGuest& operator=(TestGuest&&) = delete;

  // What does not arrive, because the listener has left, is none of the guest's business.
  void send_bytes(const void* data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
      const ssize_t n =
          ::send(fd_, static_cast<const char*>(data) + done, bytes - done, MSG_NOSIGNAL);
      if (n <= 0) return;
      done += static_cast<size_t>(n);
    }
  }
  void send_text(const std::string& text) { send_bytes(text.data(), text.size()); }
  template <class T>
  void send(const T& value) {
    send_bytes(&value, sizeof value);
  }

  template <class T>
  bool receive(T* value) {
    size_t done = 0;
    while (done < sizeof *value) {
      const ssize_t n = read_some(reinterpret_cast<char*>(value) + done, sizeof *value - done);
      if (n <= 0) return false;
      done += static_cast<size_t>(n);
    }
    return true;
  }
  // Waits until the other side ends the connection; throws away what it says until then.
  bool is_closed() {
    char nothing[4096];
    for (;;) {
      pollfd p = {fd_, POLLIN, 0};
      if (poll(&p, 1, kGuestSeconds * 1000) <= 0) return false;
      if (recv(fd_, nothing, sizeof nothing, 0) <= 0) return true;
    }
  }

  // As an acceptor wants it. False: the acceptor did not answer, or not as one that knows the secret.
  bool shake_hands(const Hello& mine, const std::string& secret) {
    struct {
      Hello hello;
      RailProof proof;
    } answer;
    send(mine);
    if (!receive(&answer)) return false;
    send(prove_hello(secret, HelloPart::kConnector, mine, answer.hello));
    sealer_.emplace(prove_hello(secret, HelloPart::kConnectorFrames, mine, answer.hello));
    return same_proof(answer.proof, prove_hello(secret, HelloPart::kAcceptor, mine, answer.hello));
  }

  // What a frame has behind its head if there is a secret; `frame` counts those of the connection.
  struct Tags {
    RailTag payload = {}, head = {};
  };
  Tags tags_of(const FrameHead& head, std::span<const std::byte> payload, uint64_t frame) {
    Tags tags;
    if (!payload.empty()) tags.payload = sealer_->tag(2 * frame + 1, payload);
    std::array<std::byte, sizeof head + sizeof tags.payload> said;
    std::memcpy(said.data(), &head, sizeof head);
    std::memcpy(said.data() + sizeof head, &tags.payload, sizeof tags.payload);
    tags.head = sealer_->tag(2 * frame, said);
    return tags;
  }

 private:
  ssize_t read_some(void* to, size_t bytes) {
    pollfd p = {fd_, POLLIN, 0};
    return poll(&p, 1, kGuestSeconds * 1000) > 0 ? recv(fd_, to, bytes, 0) : -1;
  }
  int fd_;
  std::optional<RailSealer> sealer_;
};

}  // namespace moraine
