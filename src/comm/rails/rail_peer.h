// RailPeer: one peer seen over all its rails: which rail carries which parcel, which rails live, what is sent again.
//
// A rail carries one connection at a time. Each is proved first (a frame as large as frames get must come through),
// then takes parcels as fast as it can carry them, so that N rails share the load by their speed. What it carried and
// the peer has not acknowledged is given to other rails when it ends.
//
// A rail is dead when it has been silent for `dead_seconds` while another rail of the same peer was heard. If all are
// silent, the peer may be busy, stopped, or behind links that are all down: nothing is given up, messages are held,
// and from `renew_seconds` on connections are made anew. Lost rails are tried at once then, however often they failed:
// one may have healed. Silence counts only while this side was looking, so a rank that was not running for a while
// accuses nobody.
//
// What was begun is run again in the end: after each `hold_seconds` without a rail that carries, all connections are
// given up, what they had under way goes back to its lanes, and new ones have `interval_seconds` to come up. After
// `resends` of these the peer is lost. A rail that comes back at any moment before ends the hold, and each operation
// goes on where it stopped (docs/rails.md "An operation is held").
//
// Time comes in as an argument, frames go out through next_frame and come in through place and arrived: the sockets
// (rail_connection.h) and the simulation in rail_peer_test.cc stand below this seam.
//
// Errors:  none; false means that the other side breaks the protocol, and the connection must be closed.
// Source:  DESIGN.md "Transports"; what packaged transports do instead is in docs/rails.md.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "comm/rails/frame.h"
#include "comm/rails/lanes.h"
#include "comm/rails/rail_times.h"

namespace moraine {

enum class RailState : uint8_t { kClosed, kProving, kUp };

// One frame on its way into a connection.
struct Outbound {
  FrameHead head;
  Parcel parcel;  // of a counted frame
  bool is_counted = false;
};

struct RailCounts {
  int64_t sent_bytes = 0, received_bytes = 0;  // payloads
  int64_t sent_again = 0, duplicates = 0;      // frames
  int64_t lost = 0;                            // connections that ended
};

class RailPeer {
 public:
  RailPeer(int rails, uint32_t generation, const RailTimes& times,
           int64_t chunk_bytes = kChunkBytes);

  Lanes& lanes() { return lanes_; }
  const Lanes& lanes() const { return lanes_; }
  int rails() const { return static_cast<int>(rails_.size()); }

  // Connections -----------------------------------------------------------------------------------
  // `connection`: a number that both sides give it. A rail that has one already loses that.
  void rail_opened(int rail, uint64_t connection, double now);
  void rail_closed(int rail, double now);
  RailState state(int rail) const { return at(rail).state; }
  uint64_t connection(int rail) const { return at(rail).connection; }
  bool any_open() const;
  int64_t in_flight_bytes(int rail) const { return at(rail).in_flight_bytes; }
  // A closed rail that should be tried now; the answer is trying, then either rail_opened or retry_later. True while
  // it is tried: begin again, what was sent so far is lost.
  bool wants_connection(int rail, double now) const;
  void trying(int rail);
  void retry_later(int rail, double now);
  void retry_now(int rail);  // there is news of the link, or no other rail is left
  // What fits into its way at once: its rate times its round trip. 0 until this is said.
  void set_path(int rail, double bytes);

  // Frames ----------------------------------------------------------------------------------------
  // The next frame for this rail, sealed, counted as sent; false: nothing to say. `payload` is valid while
  // payload(out) gives the same; null: withdrawn since, and the connection cannot go on.
  bool next_frame(int rail, double now, Outbound* out);
  const std::byte* payload(const Outbound& out) const;

  void heard(int rail);  // bytes came
  // A head that check_head passed. False: not allowed here.
  bool accepts(const FrameHead& head) const;
  // Where its payload goes; null: nowhere. Ask again before each write.
  std::byte* place(const FrameHead& head);
  // The frame is whole. Rails that the peer says are silent there are in *lost. False: it acknowledges what was never
  // sent.
  bool arrived(int rail, const FrameHead& head, const std::byte* payload, std::vector<int>* lost);

  // Moves time on. Returns rails whose connections must be closed: silent, or never proved.
  std::vector<int> tick(double now);
  // Since a rank was last heard over a rail that carries (was proved): of all rails together.
  double uncarried_seconds() const;
  int resends() const { return resends_; }  // how often what was begun was run again since then
  bool is_lost() const;                     // and that was the last time
  bool has_carried() const { return carried_ > 0; }  // a rail has, at some time
  const RailTimes& times() const { return times_; }

  // Ends ------------------------------------------------------------------------------------------
  void send_fault(const std::string& reason);
  void send_goodbye();
  bool has_said_goodbye() const { return goodbye_; }
  const std::string* fault() const { return fault_.empty() ? nullptr : &fault_; }
  bool is_failing() const { return !fault_.empty() || !fault_out_.empty(); }
  bool fault_is_told() const;  // what send_fault said has arrived
  // Every parcel is acknowledged.
  bool all_acknowledged() const;

  const RailCounts& counts(int rail) const { return at(rail).counts; }

 private:
  struct Rail {
    RailState state = RailState::kClosed;
    uint64_t connection = 0;
    bool probe_sent = false, acknowledge_now = false;
    uint64_t received = 0;         // counted frames of the peer on this connection
    uint64_t told = 0;             // of these, how many the last head said
    uint64_t acknowledged = 0;     // counted frames of ours
    std::deque<Parcel> in_flight;  // not acknowledged, oldest first
    int64_t in_flight_bytes = 0, window_bytes = 0;
    double heard = 0, opened = 0;  // in time observed
    double sent = 0;               // last frame, in the caller's time
    double retry_at = 0, retry_seconds = 0;
    RailCounts counts;
  };
  Rail& at(int rail) { return rails_[static_cast<size_t>(rail)]; }
  const Rail& at(int rail) const { return rails_[static_cast<size_t>(rail)]; }
  bool next_parcel(Rail& rail, Parcel* parcel);
  bool acknowledge(Rail& rail, uint64_t received);
  void say_lost(int rail);
  double freshest() const;
  bool begin_resend();

  const uint32_t generation_;
  const RailTimes times_;
  const std::vector<std::byte> probe_;
  Lanes lanes_;
  std::vector<Rail> rails_;
  std::deque<Parcel> notices_;  // of the rails themselves, before any message
  std::vector<std::byte> scratch_;
  std::string fault_, fault_out_;
  bool goodbye_ = false, hears_nothing_ = false;
  double observed_ = 0, last_tick_ = -1;
  double carried_ = 0;  // when a rail last did, in time observed
  int resends_ = 0;
};

}  // namespace moraine
