// FarMessages: messages to ranks whose memory cannot be read from here.
//
// The part of a transport that leaves the host: Open MPI's messages (mpi_messages.h) or rails of our own
// (rails/rails_messages.h). Calls are Transport's; faults are recorded in the host's memory (host_transport.h).
//
// Errors:  kPeerLost.
// Threads: one thread per channel at a time.
#pragma once

#include <string>

#include "comm/transport.h"

namespace moraine {

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

  virtual void announce_fault(const std::string& reason) = 0;
  // Until every send is finished, or `seconds`: then false.
  virtual bool finish(double seconds) = 0;
};

}  // namespace moraine
