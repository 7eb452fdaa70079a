// FarMessages: messages to ranks whose memory cannot be read from here.
//
// The part of a transport that leaves the host: Open MPI's messages (mpi_messages.h) or rails of our own
// (rails/rails_messages.h). Calls are Transport's; faults are recorded in the host's memory (host_transport.h).
//
// Frames are small messages that nobody waits for: whoever moves bytes hands them to the listener of their channel, on
// any thread, and sends back what it returns. They pass between messages of the same channel, in the order of post
// per peer and channel; without a listener they are dropped. The windows of window.h are made of them.
//
// Errors:  kPeerLost.
// Threads: one thread per channel at a time; post and wait_until: any.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/transport.h"

namespace moraine {

constexpr int64_t kMostFrameBytes = 16 << 10;

// The answer; empty: none. Called for one frame at a time, with the transport's locks held: it may wait for nobody and
// call no FarMessages.
using FrameListener = std::function<std::vector<std::byte>(int peer, ConstBytes frame)>;

struct FarWait {
  int peer, channel;
  uint64_t label;
  double seconds;
  const char* doing;  // "waits for"
};

class FarMessages {
 public:
  virtual ~FarMessages() = default;

  virtual SendTicket send(int peer, int channel, uint64_t label, ConstBytes data,
                          double seconds) = 0;
  virtual void wait_sent(const SendTicket& ticket, double seconds) = 0;
  virtual void receive(int peer, int channel, uint64_t label, Bytes out, double seconds) = 0;
  virtual Incoming open(int peer, int channel, uint64_t label, int64_t bytes, double seconds) = 0;
  virtual ConstBytes next(Incoming& message, int64_t bytes, Bytes staging, double seconds) = 0;
  virtual void close(Incoming& message) = 0;
  virtual void drop(Incoming& message) = 0;
  virtual void withdraw(const SendTicket& ticket) = 0;

  // Empty: nobody listens any more; when it returns, the last call has ended.
  virtual void listen(int channel, FrameListener listener) = 0;
  // Copies at most kMostFrameBytes and returns; what has no place on the way is kept in order.
  virtual void post(int peer, int channel, ConstBytes frame) = 0;
  // Moves bytes until `ready`, which only frames can make true; it is called with the transport's locks held.
  virtual void wait_until(const FarWait& wait, const std::function<bool()>& ready) = 0;

  virtual void announce_fault(const std::string& reason) = 0;
  // Until every send is finished, or `seconds`: then false.
  virtual bool finish(double seconds) = 0;
};

}  // namespace moraine
