// Wire: what a rendezvous needs of the world: connections, a clock, a second thread.
//
// In a job sockets and the system's clock (socket_wire). Tests put the same code into a world of virtual hosts and
// virtual time (rendezvous_world_test.cc).
//
// Errors:  kIo if an address cannot be listened on, or the system gives no socket.
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "comm/rails/socket_address.h"

namespace moraine {

class WireThread {
 public:
  virtual ~WireThread() = default;
  virtual void join() = 0;
};

// Listeners and connections are numbers, as files are; none waits by itself.
class Wire {
 public:
  virtual ~Wire() = default;
  virtual double now() = 0;  // in seconds, of a clock that never goes back
  virtual void pause(double seconds) = 0;
  virtual std::unique_ptr<WireThread> start(const char* what, std::function<void()> body) = 0;

  virtual int listen(const SocketAddress& address) = 0;
  virtual int accept(int listener) = 0;                             // -1: nobody is there
  virtual int reach(const SocketAddress& address, double end) = 0;  // -1: nobody answers until then
  virtual void close(int link) = 0;
  virtual SocketAddress own_address(int link) = 0;
  // From now on it is found out, within half a minute of silence, that the host behind `link` is gone.
  virtual void keep_alive(int link) = 0;

  // As many bytes as can be moved at once; 0: none now; -1: the other side is gone.
  virtual int64_t read(int link, void* to, size_t bytes) = 0;
  virtual int64_t write(int link, const void* from, size_t bytes) = 0;
  // Whether there is something to read, to accept, or an end, on one of `links` within `seconds`.
  virtual bool wait_to_read(std::span<const int> links, double seconds) = 0;
  virtual bool wait_to_write(int link, double seconds) = 0;
};

Wire& socket_wire();

// Whole messages until `end`; infinity: for as long as the other side is there. False: it is gone, or took too long.
bool send_all(Wire& wire, int link, const void* data, size_t bytes, double end);
bool receive_all(Wire& wire, int link, void* data, size_t bytes, double end);

}  // namespace moraine
