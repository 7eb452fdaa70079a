// ClientWire: one connection as a stream of bytes with a timer: the seam between HTTP and sockets.
//
// Threads: all calls, and all answers to them, are on the server's one io thread. No call answers
//          before it returns.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace moraine {

class ClientWire {
 public:
  virtual ~ClientWire() = default;

  // The handshake of TLS, if there is one.
  virtual void open(std::function<void(bool opened)> done) = 0;
  // At least one byte; 0: the peer sends no more; -1: the connection is lost or closed.
  virtual void read(std::span<char> into, std::function<void(int64_t bytes)> done) = 0;
  // At least one byte of `bytes`, which stays until then; -1: lost or closed.
  virtual void write(std::string_view bytes, std::function<void(int64_t bytes)> done) = 0;
  // Bytes that go out without waiting, while no write is under way; 0: ask write, which also says what is wrong.
  virtual int64_t write_now(std::string_view /*bytes*/) { return 0; }
  // Calls once, so many seconds from now; replaces the one before. Negative: none.
  virtual void set_timer(double seconds, std::function<void()> done) = 0;
  // Nothing more will be written; the peer may still send.
  virtual void end_output(std::function<void()> done) = 0;
  // Ends everything; what is outstanding is answered by -1, the timer is not.
  virtual void close() = 0;
  virtual std::string peer() const = 0;
};

}  // namespace moraine
