// MpiMessages: messages to ranks whose memory cannot be read from here, as Open MPI point-to-point
// messages.
//
// A message is a header (label, bytes, payload if it is small), then pieces of up to kPieceBytes,
// all with the channel as tag, so that they arrive in order. A rank that fails sends the reason
// with a tag of its own to every rank that shares no memory with it. All waits poll, within a
// deadline.
//
// Errors:  kPeerLost. Faults are recorded in the host transport's memory.
// Threads: one thread per channel at a time; calls into Open MPI happen one at a time.
#pragma once

#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "comm/far_messages.h"
#include "comm/host_transport.h"
#include "comm/mpi_library.h"

namespace moraine {

class MpiMessages : public FarMessages {
 public:
  static constexpr int64_t kPieceBytes = 256 << 10;
  static constexpr int64_t kSmallBytes = 1024;  // travel with the header

  // `others`: ranks to reach this way.
  MpiMessages(HostTransport& host, int rank, int size, std::vector<int> others);

  SendTicket send(int peer, int channel, uint64_t label, ConstBytes data, double seconds) override;
  void wait_sent(const SendTicket& ticket, double seconds) override;
  void receive(int peer, int channel, uint64_t label, Bytes out, double seconds) override;
  Incoming open(int peer, int channel, uint64_t label, int64_t bytes, double seconds) override;
  ConstBytes next(Incoming& message, int64_t bytes, Bytes staging, double seconds) override;
  void close(Incoming& message) override;
  // After a fault nothing of Open MPI's is used any more: it keeps what it has.
  void drop(Incoming&) override {}
  void withdraw(const SendTicket&) override {}

  void announce_fault(const std::string& reason) override;
  bool finish(double seconds) override;

  // Looks for faults of others, and moves what is under way: Open MPI does nothing unasked.
  void look();

 private:
  struct Header {
    uint64_t label;
    int64_t bytes;
  };
  struct Sending {
    uint64_t number;
    std::vector<std::byte> head;
    std::vector<MpiRequest> requests;
  };
  struct Lane {  // one (peer, channel)
    uint64_t sent = 0;
    uint64_t label = 0;
    std::deque<Sending> sending;
    std::vector<std::byte> head;       // of the message being taken
    std::vector<std::byte> pieces[2];  // piece i is in pieces[i % 2]
    MpiRequest requests[2] = {nullptr, nullptr};
    int64_t arrived = 0;  // pieces
  };
  struct Wait {
    int peer, channel;
    uint64_t label;
    double seconds;
    const char* doing;
  };

  Lane& lane(int peer, int channel) {
    return lanes_[static_cast<size_t>(peer * kMaxChannels + channel)];
  }
  void post_send(const void* data, int64_t bytes, int peer, int tag, MpiRequest* request);
  void post_receive(void* data, int64_t bytes, int peer, int tag, MpiRequest* request);
  void post_piece(const Incoming& in, Lane& l, int64_t piece);
  bool test(MpiRequest* request, MpiStatus* status);
  void wait(MpiRequest* request, MpiStatus* status, const Wait& w);
  void forget_finished(Lane& l);
  bool finished(Sending& s);
  void check(int result, const char* doing);

  const MpiLibrary& mpi_;
  HostTransport& host_;
  const int rank_;
  const std::vector<int> others_;
  std::recursive_mutex mutex_;  // a failing call announces its failure
  std::vector<Lane> lanes_;
  std::mutex fault_mutex_;
  std::vector<std::byte> fault_in_, fault_out_;
  MpiRequest fault_request_ = nullptr;
  std::vector<MpiRequest> fault_sends_;
};

}  // namespace moraine
