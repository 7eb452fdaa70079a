// MpiMessages: messages to ranks whose memory cannot be read from here, as Open MPI point-to-point
// messages.
//
// A message is a header (label, bytes, payload if it is small), then pieces of up to kPieceBytes,
// all with the channel as tag, so that they arrive in order. A rank that fails sends the reason
// with a tag of its own to every rank that shares no memory with it. All waits poll, within a
// deadline. Frames have a tag for each channel; while somebody listens, a thread of its own polls too.
//
// Errors:  kPeerLost. Faults are recorded in the host transport's memory.
// Threads: one thread per channel at a time; calls into Open MPI happen one at a time.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <list>
#include <mutex>
#include <string>
#include <thread>
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
  ~MpiMessages() override;

  SendTicket send(int peer, int channel, uint64_t label, ConstBytes data, double seconds) override;
  void wait_sent(const SendTicket& ticket, double seconds) override;
  void receive(int peer, int channel, uint64_t label, Bytes out, double seconds) override;
  Incoming open(int peer, int channel, uint64_t label, int64_t bytes, double seconds) override;
  ConstBytes next(Incoming& message, int64_t bytes, Bytes staging, double seconds) override;
  void close(Incoming& message) override;
  // After a fault nothing of Open MPI's is used any more: it keeps what it has.
  void drop(Incoming&) override {}
  void withdraw(const SendTicket&) override {}
  void listen(int channel, FrameListener listener) override;
  void post(int peer, int channel, ConstBytes frame) override;
  void wait_until(const FarWait& wait, const std::function<bool()>& ready) override;

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
  using Wait = FarWait;
  struct Ear {  // of one channel
    FrameListener listener;
    std::vector<std::byte> frame;
    MpiRequest request =
        nullptr;  // once posted, until the end: frames without a listener are dropped
  };
  struct PostedFrame {
    std::vector<std::byte> bytes;
    MpiRequest request;
  };

  Lane& lane(int peer, int channel) {
    return lanes_[static_cast<size_t>(peer * kMaxChannels + channel)];
  }
  void post_send(const void* data, int64_t bytes, int peer, int tag, MpiRequest* request);
  void post_receive(void* data, int64_t bytes, int peer, int tag, MpiRequest* request);
  void post_piece(const Incoming& in, Lane& l, int64_t piece);
  bool test(MpiRequest* request, MpiStatus* status);
  void wait(MpiRequest* request, MpiStatus* status, const Wait& w);
  template <class Ready>
  void wait(const Wait& w, Ready ready);
  void hear_frames();
  void hear_frames(int channel);
  void forget_posted();
  void poll_in_background();
  void forget_finished(Lane& l);
  bool finished(Sending& s);
  void check(int result, const char* doing);

  const MpiLibrary& mpi_;
  HostTransport& host_;
  const int rank_;
  const std::vector<int> others_;
  std::recursive_mutex mutex_;  // a failing call announces its failure
  std::vector<Lane> lanes_;
  std::mutex look_mutex_;  // of what look() handles
  std::vector<std::byte> fault_in_, fault_out_;
  MpiRequest fault_request_ = nullptr;
  std::vector<MpiRequest> fault_sends_;
  std::array<Ear, kMaxChannels> ears_;
  std::list<PostedFrame> posted_;  // with mutex_
  std::atomic<int> listening_{0};  // channels
  std::thread poller_;             // while listening_ > 0
};

}  // namespace moraine
