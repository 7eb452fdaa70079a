// RailPair: virtual rails between two RailPeers, in virtual time: they delay, swallow, break and heal; connections end
// half read.
//
// Side 0 connects. What a rail swallows TCP would send again, so it comes later, in order, if the connection lives.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "comm/rails/rail_peer.h"
#include "testing/seeded_draws.h"

namespace moraine {

class RailPair {
 public:
  static constexpr double kDelay = 2e-3;
  static constexpr uint32_t kGeneration = 7;

  RailPair(SeededDraws& draws, RailPeer& side0, RailPeer& side1)
      : draws_(draws),
        ends_{&side0, &side1},
        ways_(static_cast<size_t>(2 * side0.rails())),
        comes_(static_cast<size_t>(side0.rails()), -1.0) {}

  int rails() const { return ends_[0]->rails(); }
  // What side `from` says over it does not arrive until then.
  void swallow(int from, int rail, double until) {
    double& at = way(from, rail).swallows_until;
    at = std::max(at, until);
  }
  void reset(int rail, double now) { lose(0, rail, now), lose(1, rail, now); }
  bool passes(int rail, double now) const {
    return way(0, rail).swallows_until < now && way(1, rail).swallows_until < now;
  }

  void connect(double now) {
    for (int rail = 0; rail < rails(); ++rail) connect(rail, now);
  }
  // What has come to this side, and what time does to its rails.
  void hear(int side, double now) {
    std::vector<int> lost;
    for (int rail = 0; rail < rails(); ++rail) take_in(side, rail, now, &lost);
    for (const int rail : ends_[side]->tick(now)) lost.push_back(rail);
    for (const int rail : lost) close(side, rail, now);
  }
  void say(int side, double now) {
    for (int rail = 0; rail < rails(); ++rail) give_out(side, rail, now);
  }

 private:
  struct Flight {  // a frame in a connection
    double at;
    FrameHead head;
    std::vector<std::byte> payload;
  };
  // One direction of a rail: bytes in order while the connection lives.
  struct Way {
    std::deque<Flight> flying;
    double swallows_until = 0;
    bool half_read = false;
  };

  Way& way(int from, int rail) { return ways_[static_cast<size_t>(2 * rail + from)]; }
  const Way& way(int from, int rail) const { return ways_[static_cast<size_t>(2 * rail + from)]; }

  void lose(int side, int rail, double now) {
    ends_[side]->rail_closed(rail, now);
    way(1 - side, rail).flying.clear();  // what was coming in
    way(1 - side, rail).half_read = false;
  }

  // The other side learns of it if the rail carries that far.
  void close(int side, int rail, double now) {
    lose(side, rail, now);
    if (way(side, rail).swallows_until < now) lose(1 - side, rail, now);
  }

  void connect(int rail, double now) {
    double& comes = comes_[static_cast<size_t>(rail)];
    if (comes < 0 && ends_[0]->wants_connection(rail, now)) comes = now + 2 * kDelay;
    if (comes < 0 || now < comes) return;
    comes = -1;
    if (!passes(rail, now)) return ends_[0]->retry_later(rail, now);
    for (int side = 0; side < 2; ++side) {
      lose(side, rail, now);
      ends_[side]->rail_opened(rail, ++connection_ / 2 + 1000, now);
      ends_[side]->set_path(
          rail, static_cast<double>(draws_.below(12) * ends_[side]->lanes().chunk_bytes()));
    }
  }

  void give_out(int side, int rail, double now) {
    Outbound out;
    RailPeer& peer = *ends_[side];
    for (int i = 0; i < 4 && peer.next_frame(rail, now, &out); ++i) {
      const std::byte* payload = peer.payload(out);
      Way& w = way(side, rail);
      const double jitter = static_cast<double>(draws_.below(5)) * 1e-3;
      double at = std::max(now, w.swallows_until) + kDelay + jitter;
      if (!w.flying.empty()) at = std::max(at, w.flying.back().at);
      w.flying.push_back(
          {at, out.head, std::vector<std::byte>(payload, payload + out.head.payload_bytes)});
    }
  }

  // A frame is read in two halves at different times, so a rail can end between them.
  void take_in(int side, int rail, double now, std::vector<int>* lost) {
    RailPeer& peer = *ends_[side];
    Way& w = way(1 - side, rail);
    if (peer.state(rail) == RailState::kClosed) w.flying.clear();
    while (!w.flying.empty() && w.flying.front().at <= now && w.swallows_until < now) {
      Flight& f = w.flying.front();
      peer.heard(rail);
      ASSERT_EQ(check_head(f.head, kGeneration, peer.lanes().chunk_bytes()), HeadFault::kNone);
      ASSERT_TRUE(peer.accepts(f.head));
      std::byte* place = peer.place(f.head);
      const size_t half = f.head.payload_bytes / 2, from = w.half_read ? half : 0,
                   to = w.half_read ? f.head.payload_bytes : half;
      if (place != nullptr) std::memcpy(place + from, f.payload.data() + from, to - from);
      w.half_read = !w.half_read;
      if (w.half_read) return;
      ASSERT_TRUE(place == nullptr || payload_is_whole(f.head, place));
      ASSERT_TRUE(peer.arrived(rail, f.head, place, lost));
      w.flying.pop_front();
    }
  }

  SeededDraws& draws_;
  RailPeer* ends_[2];
  std::vector<Way> ways_;
  std::vector<double> comes_;
  uint64_t connection_ = 0;
};

}  // namespace moraine
