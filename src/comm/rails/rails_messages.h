// RailsMessages: messages to ranks of other hosts over several TCP paths, with the waiting that goes with them.
//
// Whoever waits moves the bytes: one waiter at a time sleeps on the sockets and handles what they say, the others
// sleep until it has. While nobody waits, a thread of its own does it, so that heartbeats leave, a healed rail is
// taken up, and what was sent goes on while the rank computes.
//
// A peer whose rails are all silent is waited for: until RailTimes' resends are over, or the operation's own deadline.
// Nothing of an operation is lost meanwhile; it goes on where it stopped when the first rail is back, and log and
// heartbeat say that it is held.
//
// Errors:  kPeerLost, as transport.h; names the rank and what each rail says.
// Threads: one thread per channel at a time.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/far_messages.h"
#include "comm/host_transport.h"
#include "comm/rails/rail_sockets.h"

namespace moraine {

class RailsMessages : public FarMessages {
 public:
  RailsMessages(HostTransport& host, RailSockets::Options options);
  ~RailsMessages() override;

  // Until a rail to every peer is up. Errors: kPeerLost after `seconds`.
  void meet(double seconds);
  // That was why meet() failed: no rail to a peer came up, of whom nobody knows that it died. Its host may be gone, or
  // no path to it carries.
  bool is_apart() const { return is_apart_; }

  SendTicket send(int peer, int channel, uint64_t label, ConstBytes data, double seconds) override;
  void wait_sent(const SendTicket& ticket, double seconds) override;
  void receive(int peer, int channel, uint64_t label, Bytes out, double seconds) override;
  Incoming open(int peer, int channel, uint64_t label, int64_t bytes, double seconds) override;
  ConstBytes next(Incoming& message, int64_t bytes, Bytes staging, double seconds) override;
  void close(Incoming& message) override;
  void drop(Incoming& message) override;
  void withdraw(const SendTicket& ticket) override;
  void listen(int channel, FrameListener listener) override;
  void post(int peer, int channel, ConstBytes frame) override;
  void wait_until(const FarWait& wait, const std::function<bool()>& ready) override;
  void announce_fault(const std::string& reason) override;
  bool finish(double seconds) override;

  RailCounters counters();
  RailCounts counts(int peer, int rail);

 private:
  using Wait = FarWait;
  using Lock = std::unique_lock<std::mutex>;
  template <class Ready>
  void wait(Lock& lock, const Wait& w, Ready ready);
  // One turn of waiting: at most `seconds`.
  void turn(Lock& lock, double seconds);
  void work(const RailSockets::Events& events);
  void run_in_background();
  void check(Lock& lock, const Wait& w, double waited);
  void hold(const Wait& w);  // notes it where its peer is silent
  void end_holds();
  [[noreturn]] void throw_lost(Lock& lock, const Wait& w, const std::string& what);
  void open_message(Lock& lock, const Wait& w, int64_t bytes, Bytes out);
  bool all_gave_everything() const;
  void hear_frames(int peer);
  bool hear_frames(int peer, int channel);  // whether there were any
  void post_now(int peer, int lane, std::vector<std::byte> frame);
  void post_kept(int peer);

  HostTransport& host_;
  struct Hold {  // of an operation, while its peer is silent
    std::string operation;
    double seconds = 0;
    int resends = 0;
    bool is_told = false;  // by an event; the heartbeat says it at once
  };

  std::vector<int> peers_;
  std::map<int, Hold> holds_;  // by peer
  std::mutex mutex_;
  RailSockets sockets_;
  std::condition_variable changed_, background_;
  std::array<uint64_t, kMaxChannels> labels_ = {};  // of the last send of each channel
  std::string broken_;                              // what the system refused; empty: nothing
  std::array<FrameListener, kMaxChannels> listeners_;
  // Frames without a place on their lane, by peer and lane.
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> kept_;
  bool is_driven_ = false, stop_ = false, is_apart_ = false;
  int waiters_ = 0;
  double driven_at_ = 0, ticked_at_ = 0;
  std::thread thread_;
};

}  // namespace moraine
