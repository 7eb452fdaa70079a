// Transport: how one rank reaches the others: messages in order, a deadline on every wait.
//
//   send      names bytes for `peer` and returns at once; they must stay untouched until the send is
//             finished (wait_sent).
//   receive   waits for the next message of (peer, channel), which must have the wanted label and
//             size, then copies it (receive) or hands it over piece by piece (open, next, close).
//
// Ranks of one host move bytes once, from the sender's memory to the receiver's. A label says what a
// message is for (step, operation): a peer that does something else is found out by the first
// message, not by a wrong sum.
//
// A rank that fails says so to all (fail); every wait of every rank then ends with that Error. A
// rank that dies says nothing: whoever waits finds out, and says it to all.
//
// Errors:  kPeerLost: names the rank and what is known of it (died, stopped, silent for n seconds,
//          failed with ..., is at another step or operation).
// Threads: one thread per channel at a time; different channels at once.
// Seam:    a transport over several network paths with failover is another implementation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace moraine {

class FarMessages;
class HostTransport;

using ConstBytes = std::span<const std::byte>;
using Bytes = std::span<std::byte>;

constexpr int kMaxChannels = 16;

// A message on its way out.
struct SendTicket {
  int peer = 0, channel = 0;
  uint64_t sequence = 0;
};

// A message being taken. Fields are the transport's.
struct Incoming {
  int peer = 0, channel = 0;
  int64_t bytes = 0, taken = 0;
  uint64_t slot = 0;
  const std::byte* memory = nullptr;  // the sender's, if it can be read from here
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int host_of(int rank) const = 0;  // hosts are numbered from 0 by their first rank
  virtual std::string name() const = 0;     // "thread", "mpi (shared memory)", "mpi"

  virtual SendTicket send(int peer, int channel, uint64_t label, ConstBytes data,
                          double seconds) = 0;
  virtual void wait_sent(const SendTicket& ticket, double seconds) = 0;

  virtual void receive(int peer, int channel, uint64_t label, Bytes out, double seconds) = 0;
  virtual Incoming open(int peer, int channel, uint64_t label, int64_t bytes, double seconds) = 0;
  // The next `bytes` of it: a view of the sender's memory, or of `staging` (at least `bytes`).
  virtual ConstBytes next(Incoming& message, int64_t bytes, Bytes staging, double seconds) = 0;
  virtual void close(Incoming& message) = 0;

  // After an operation that ended by an exception: drop each message that is still open, then
  // withdraw each send that is not finished. withdraw fails with `reason` if nobody has failed yet,
  // and returns when nobody reads the bytes any more: then their memory may go.
  virtual void drop(Incoming& message);
  virtual void withdraw(const SendTicket& ticket, const std::string& reason);

  // Every wait of every rank, on any channel, ends with kPeerLost and this reason. The first one
  // stays.
  virtual void fail(const std::string& reason) = 0;

  // All ranks end now, and know it, even if it is by an exception: who is destroyed so is not lost for those that have
  // not heard all of the last operation.
  virtual void end_together() {}

  // The name of the group that uses this channel, for messages.
  virtual void name_channel(int channel, const std::string& name);

  // The part that reaches ranks of this host through memory; null if there is none.
  virtual HostTransport* host() { return nullptr; }
  // The part that reaches ranks of other hosts; null if there is none.
  virtual FarMessages* far() { return nullptr; }
};

}  // namespace moraine
