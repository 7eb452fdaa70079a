// Two ends of a peer over virtual rails, with a virtual clock, by seeds: rails delay, stall, swallow, break and heal,
// connections end half read. Breaks if a message is lost, doubled, mixed or cut, if both ends wait for ever, or if
// memory that was given back is touched.
#include "comm/rails/rail_peer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <queue>

#include "testing/seeded_draws.h"

namespace moraine {
namespace {

constexpr int64_t kChunk = 512;
constexpr double kStep = 1e-3, kDelay = 2e-3;
constexpr int kChannels = 3;

std::byte byte_of(int from, int channel, uint64_t message, int64_t i) {
  return static_cast<std::byte>(from * 131 + channel * 31 + static_cast<int64_t>(message) * 7 +
                                i * 13 + i / 251);
}

int64_t size_of(uint64_t seed, int from, int channel, uint64_t message) {
  const uint64_t which = random_below(4, seed, Stream::kTest, 1 << 20,
                                      message * 64 + static_cast<uint64_t>(from * 8 + channel));
  const int64_t most[] = {1, 200, 2 * kChunk, 40 * kChunk};
  return static_cast<int64_t>(
      random_below(static_cast<uint64_t>(most[which]), seed, Stream::kTest, 1 << 21,
                   message * 64 + static_cast<uint64_t>(from * 8 + channel)));
}

struct Flight {  // a frame in a connection
  double at;
  FrameHead head;
  std::vector<std::byte> payload;
};

// One direction of a rail: bytes in order while the connection lives.
struct Way {
  std::deque<Flight> flying;
  double swallows_until = 0;  // nothing comes through; what TCP would send again comes later
  bool half_read = false;
};

// A rank's program: on each channel it sends `messages` and takes as many.
struct End {
  End(int side, int rails, uint64_t seed)
      : me(side), seed(seed), peer(rails, 7, RailTimes{}, kChunk) {}

  void run(SeededDraws& draws, int messages) {
    Lanes& lanes = peer.lanes();
    for (int c = 0; c < kChannels; ++c) {
      if (sent[c] < messages && lanes.has_room(c) && !draws.one_in(4)) send(c);
      receive(c, messages, draws);
    }
    // Memory of finished messages is given back at once: whoever still reads it is found by the hash, or by ASan.
    std::erase_if(memory,
                  [&lanes](const auto& m) { return lanes.is_sent(m.first.first, m.first.second); });
  }

  void send(int c) {
    const uint64_t number = static_cast<uint64_t>(++sent[c]);
    std::vector<std::byte> data(static_cast<size_t>(size_of(seed, me, c, number)));
    for (size_t i = 0; i < data.size(); ++i)
      data[i] = byte_of(me, c, number, static_cast<int64_t>(i));
    const auto at = memory.emplace(std::pair(c, number), std::move(data)).first;
    ASSERT_EQ(peer.lanes().send(c, number, at->second), number);
    if (static_cast<int64_t>(at->second.size()) <= peer.lanes().copied_bytes()) memory.erase(at);
  }

  void receive(int c, int messages, SeededDraws& draws) {
    Lanes& lanes = peer.lanes();
    MessageHead head;
    if (!open[c]) {
      if (taken[c] == messages || !lanes.has_next(c, &head) || draws.one_in(3)) return;
      const uint64_t number = static_cast<uint64_t>(taken[c]) + 1;
      ASSERT_EQ(head.label, number);
      ASSERT_EQ(head.bytes, size_of(seed, 1 - me, c, number));
      whole[c] = draws.one_in(2);
      out[c].assign(static_cast<size_t>(head.bytes), std::byte{0});
      lanes.open(c, whole[c] ? Bytes(out[c]) : Bytes());
      open[c] = true;
      at[c] = 0;
    }
    const uint64_t number = static_cast<uint64_t>(taken[c]) + 1;
    const int64_t bytes = static_cast<int64_t>(out[c].size());
    if (whole[c] && lanes.arrived(c) < bytes) return;
    while (!whole[c] && at[c] < lanes.arrived(c)) {
      const ConstBytes view = lanes.window(c, at[c]);
      std::memcpy(out[c].data() + at[c], view.data(), view.size());
      at[c] += static_cast<int64_t>(view.size());
      lanes.release(c, at[c]);
    }
    if (!whole[c] && at[c] < bytes) return;
    lanes.close(c);
    for (int64_t i = 0; i < bytes; ++i)
      ASSERT_EQ(out[c][static_cast<size_t>(i)], byte_of(1 - me, c, number, i))
          << "byte " << i << " of " << bytes;
    out[c].assign(out[c].size(), std::byte{0xdd});
    out[c].shrink_to_fit();
    open[c] = false;
    ++taken[c];
  }

  int me;
  uint64_t seed;
  RailPeer peer;
  std::map<std::pair<int, uint64_t>, std::vector<std::byte>> memory;
  int64_t sent[kChannels] = {}, taken[kChannels] = {}, at[kChannels] = {};
  bool open[kChannels] = {}, whole[kChannels] = {};
  std::vector<std::byte> out[kChannels];
};

class World {
 public:
  World(uint64_t seed, int rails)
      : draws_{seed},
        rails_(rails),
        ends_{End(0, rails, seed), End(1, rails, seed)},
        ways_(static_cast<size_t>(2 * rails)),
        comes_(static_cast<size_t>(rails), -1.0) {}

  // Until all messages are there. False: not within the time, which is more than any backoff.
  bool run(int messages, double faults_until) {
    for (now_ = 0; now_ < faults_until + 60; now_ += kStep) {
      if (now_ < faults_until) fault();
      for (int rail = 0; rail < rails_; ++rail) connect(rail);
      for (End& end : ends_) step(end, messages);
      if (::testing::Test::HasFatalFailure()) return false;
      if (done(messages)) return true;
    }
    return false;
  }
  double now() const { return now_; }
  const RailCounts& counts(int side, int rail) { return ends_[side].peer.counts(rail); }

 private:
  Way& way(int from, int rail) { return ways_[static_cast<size_t>(2 * rail + from)]; }
  bool done(int messages) {
    for (End& e : ends_) {
      for (int c = 0; c < kChannels; ++c) {
        if (e.taken[c] < messages) return false;
      }
    }
    return true;
  }

  void fault() {
    if (!draws_.one_in(60)) return;
    const int rail = static_cast<int>(draws_.below(rails_)),
              from = static_cast<int>(draws_.below(2));
    const double seconds = static_cast<double>(draws_.below(400)) * 1e-3;
    switch (draws_.below(4)) {
      case 0:
        way(from, rail).swallows_until = now_ + seconds;
        break;
      case 1:
        way(0, rail).swallows_until = way(1, rail).swallows_until = now_ + seconds;
        break;
      case 2:
        lose(0, rail), lose(1, rail);
        break;  // reset
      case 3:
        asleep_[from] = now_ + seconds / 2;
        break;  // the rank does not run
    }
  }

  void lose(int side, int rail) {
    ends_[side].peer.rail_closed(rail, now_);
    way(1 - side, rail).flying.clear();  // what was coming in
    way(1 - side, rail).half_read = false;
  }

  void connect(int rail) {
    double& comes = comes_[static_cast<size_t>(rail)];
    const bool passes = way(0, rail).swallows_until < now_ && way(1, rail).swallows_until < now_;
    if (comes < 0 && ends_[0].peer.wants_connection(rail, now_)) comes = now_ + 2 * kDelay;
    if (comes < 0 || now_ < comes) return;
    comes = -1;
    if (!passes) return ends_[0].peer.retry_later(rail, now_);
    for (int side = 0; side < 2; ++side) {
      lose(side, rail);
      ends_[side].peer.rail_opened(rail, ++connection_ / 2 + 1000, now_);
      ends_[side].peer.set_path(rail, static_cast<double>(draws_.below(12) * kChunk));
    }
  }

  void step(End& end, int messages) {
    if (asleep_[end.me] > now_) return;
    std::vector<int> lost;
    for (int rail = 0; rail < rails_; ++rail) take_in(end, rail, &lost);
    for (const int rail : end.peer.tick(now_)) lost.push_back(rail);
    for (const int rail : lost) close(end, rail);
    end.run(draws_, messages);
    for (int rail = 0; rail < rails_; ++rail) give_out(end, rail);
  }

  // The other side learns of it if the rail carries that far.
  void close(End& end, int rail) {
    lose(end.me, rail);
    if (way(end.me, rail).swallows_until < now_) lose(1 - end.me, rail);
  }

  void give_out(End& end, int rail) {
    Outbound out;
    for (int i = 0; i < 4 && end.peer.next_frame(rail, now_, &out); ++i) {
      const std::byte* payload = end.peer.payload(out);
      const Way& w = way(end.me, rail);
      const double jitter = static_cast<double>(draws_.below(5)) * 1e-3;
      double at = std::max(now_, w.swallows_until) + kDelay + jitter;
      if (!w.flying.empty()) at = std::max(at, w.flying.back().at);
      way(end.me, rail)
          .flying.push_back(
              {at, out.head, std::vector<std::byte>(payload, payload + out.head.payload_bytes)});
    }
  }

  // A frame is read in two halves at different times, so a rail can end between them.
  void take_in(End& end, int rail, std::vector<int>* lost) {
    Way& w = way(1 - end.me, rail);
    if (end.peer.state(rail) == RailState::kClosed) w.flying.clear();
    while (!w.flying.empty() && w.flying.front().at <= now_ && w.swallows_until < now_) {
      Flight& f = w.flying.front();
      end.peer.heard(rail);
      ASSERT_EQ(check_head(f.head, 7, kChunk), HeadFault::kNone);
      ASSERT_TRUE(end.peer.accepts(f.head));
      std::byte* place = end.peer.place(f.head);
      const size_t half = f.head.payload_bytes / 2, from = w.half_read ? half : 0,
                   to = w.half_read ? f.head.payload_bytes : half;
      if (place != nullptr) std::memcpy(place + from, f.payload.data() + from, to - from);
      w.half_read = !w.half_read;
      if (w.half_read) return;
      ASSERT_TRUE(place == nullptr || payload_is_whole(f.head, place));
      ASSERT_TRUE(end.peer.arrived(rail, f.head, place, lost));
      w.flying.pop_front();
    }
  }

  SeededDraws draws_;
  int rails_;
  End ends_[2];
  std::vector<Way> ways_;
  std::vector<double> comes_;
  double now_ = 0, asleep_[2] = {0, 0};
  uint64_t connection_ = 0;
};

TEST(RailPeer, WithoutAnotherRailALostOneIsTriedAtOnce) {
  const RailTimes times;
  RailPeer peer(2, 7, times, kChunk);
  peer.rail_opened(1, 1000, 0);
  for (int i = 0; i < 10; ++i) peer.retry_later(0, 0);
  double now = 0;
  for (; now < 1; now += kStep) {
    peer.heard(1);
    EXPECT_TRUE(peer.tick(now).empty());
    ASSERT_FALSE(peer.wants_connection(0, now));
  }
  const double silent_since = now;
  while (!peer.wants_connection(0, now) && now < 10) peer.tick(now += kStep);
  EXPECT_NEAR(now - silent_since, times.dead_seconds, 0.01);
  peer.trying(0);
  for (const double end = now + 0.5; now < end; now += kStep) {
    peer.tick(now);
    ASSERT_FALSE(peer.wants_connection(0, now));  // once, not at every look
  }
}

// What it holds, and a little more for both ends to work on.
TEST(RailPeer, ARailCarriesAsMuchAsItsWayHolds) {
  RailPeer peer(1, 7, {}, kChunk);
  peer.rail_opened(0, 1000, 0);
  std::vector<int> lost;
  Outbound out;
  FrameHead said;  // the probe has come
  ASSERT_TRUE(peer.next_frame(0, 0, &out));
  said.received = 1;
  ASSERT_TRUE(peer.arrived(0, said, nullptr, &lost));
  const std::vector<std::byte> data(200 * kChunk);
  ASSERT_EQ(peer.lanes().send(0, 1, data), 1u);
  said.kind = FrameKind::kGrant;
  said.message = 1;
  said.offset = std::ssize(data);
  ASSERT_TRUE(peer.arrived(0, said, nullptr, &lost));
  const auto send_all = [&] {
    while (peer.next_frame(0, 0, &out)) continue;
    return peer.in_flight_bytes(0) / kChunk;
  };
  EXPECT_EQ(send_all(), 4);
  peer.set_path(0, 10 * kChunk);
  EXPECT_EQ(send_all(), 24);
  peer.set_path(0, 1e12);
  EXPECT_EQ(send_all(), 200);
}

TEST(RailPeer, AFirstChunkThatComesAgainAsAnotherChangesNothing) {
  Lanes lanes(kChunk);
  FrameHead head, other;
  head.kind = other.kind = FrameKind::kData;
  head.message = other.message = 1;
  head.label = 5;
  other.label = 6;
  other.bytes = 2 * kChunk;
  other.payload_bytes = kChunk;
  ASSERT_TRUE(lanes.accepts(head) && lanes.accepts(other));
  EXPECT_TRUE(lanes.take(head));
  EXPECT_EQ(lanes.place(other), nullptr);
  EXPECT_FALSE(lanes.take(other));
  MessageHead next;
  ASSERT_TRUE(lanes.has_next(0, &next));
  EXPECT_EQ(next.label, 5u);
  EXPECT_EQ(next.bytes, 0);
}

TEST(RailPeer, NothingIsLostDoubledOrMixedWhateverRailsDo) {
  const char* more = std::getenv("MORAINE_RAIL_SEEDS");
  const int64_t seeds = more != nullptr ? std::atoll(more) : 10000;
  int64_t again = 0, duplicates = 0, lost = 0;
  for (int64_t seed = 0; seed < seeds; ++seed) {
    const int rails = 1 + static_cast<int>(seed % 7);
    World world(static_cast<uint64_t>(seed), rails);
    ASSERT_TRUE(world.run(4, 0.5)) << "seed " << seed << ", stopped at " << world.now();
    for (int rail = 0; rail < rails; ++rail) {
      for (int side = 0; side < 2; ++side) {
        again += world.counts(side, rail).sent_again;
        duplicates += world.counts(side, rail).duplicates;
        lost += world.counts(side, rail).lost;
      }
    }
  }
  // The faults were real: frames were sent again, some of them twice for nothing.
  EXPECT_GT(lost, seeds);
  EXPECT_GT(again, seeds);
  EXPECT_GT(duplicates, seeds / 10);
  std::printf("%ld seeds: %ld connections lost, %ld frames sent again, %ld came twice\n",
              long(seeds), long(lost), long(again), long(duplicates));
}

}  // namespace
}  // namespace moraine
