// Two ends of a peer over virtual rails, with a virtual clock, by seeds: rails delay, stall, swallow, break and heal,
// connections end half read. Breaks if a message is lost, doubled, mixed or cut, if both ends wait for ever, or if
// memory that was given back is touched.
#include "comm/rails/rail_peer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "comm/rails/test_rail_pair.h"
#include "comm/waited.h"
#include "testing/seeded_draws.h"

namespace moraine {
namespace {

constexpr int64_t kChunk = 512;
constexpr double kStep = 1e-3;
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
        pair_(draws_, ends_[0].peer, ends_[1].peer) {}

  // Until all messages are there. False: not within the time, which is more than any backoff.
  bool run(int messages, double faults_until) {
    for (now_ = 0; now_ < faults_until + 60; now_ += kStep) {
      if (now_ < faults_until) fault();
      pair_.connect(now_);
      for (End& end : ends_) step(end, messages);
      if (::testing::Test::HasFatalFailure()) return false;
      if (done(messages)) return true;
    }
    return false;
  }
  double now() const { return now_; }
  const RailCounts& counts(int side, int rail) { return ends_[side].peer.counts(rail); }

 private:
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
        pair_.swallow(from, rail, now_ + seconds);
        break;
      case 1:
        pair_.swallow(0, rail, now_ + seconds);
        pair_.swallow(1, rail, now_ + seconds);
        break;
      case 2:
        pair_.reset(rail, now_);
        break;
      case 3:
        asleep_[from] = now_ + seconds / 2;
        break;  // the rank does not run
    }
  }

  void step(End& end, int messages) {
    if (asleep_[end.me] > now_) return;
    pair_.hear(end.me, now_);
    end.run(draws_, messages);
    pair_.say(end.me, now_);
  }

  SeededDraws draws_;
  int rails_;
  End ends_[2];
  RailPair pair_;
  double now_ = 0, asleep_[2] = {0, 0};
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

// What was begun is run again after each hold: connections that are still tried or proved are given up, lost rails are
// tried at once, and what they had under way leaves again.
TEST(RailPeer, AfterEachHoldAllIsSentAgainUntilThePeerIsLost) {
  RailTimes times;
  times.renew_seconds = 1e9;
  times.last_retry_seconds = 1e9;
  times.hold_seconds = 0.5;
  times.interval_seconds = 0.25;
  RailPeer peer(2, 7, times, kChunk);
  Outbound out;
  std::vector<int> lost;
  FrameHead proved;
  proved.received = 1;
  peer.rail_opened(0, 1000, 0);
  ASSERT_TRUE(peer.next_frame(0, 0, &out));
  peer.tick(0), peer.tick(0.01);
  ASSERT_TRUE(peer.arrived(0, proved, nullptr, &lost));
  const std::vector<std::byte> data(kChunk);
  peer.lanes().send(0, 1, data);
  for (int resend = 0; resend <= times.resends; ++resend) {
    while (peer.next_frame(0, 0, &out)) continue;
    EXPECT_EQ(peer.in_flight_bytes(0), kChunk);  // what was sent; later a proof
    const double held = resend * (times.hold_seconds + times.interval_seconds);
    const double until = held + (resend == times.resends ? 0 : times.hold_seconds);
    double now = 0.01 + std::max(0.0, held - times.interval_seconds);
    std::vector<int> closed;
    for (; now < 0.01 + until + 0.02 && closed.empty(); now += 0.01) closed = peer.tick(now);
    if (resend == times.resends) break;
    ASSERT_EQ(closed, std::vector<int>{0}) << "resend " << resend;
    EXPECT_NEAR(peer.uncarried_seconds(), until, 0.02);
    EXPECT_EQ(peer.resends(), resend + 1);
    EXPECT_FALSE(peer.is_lost());
    peer.rail_closed(0, now);
    EXPECT_EQ(peer.counts(0).sent_again, 1);
    EXPECT_TRUE(peer.wants_connection(1, now));
    for (int i = 0; i < 40; ++i) peer.retry_later(1, now);
    peer.rail_opened(0, 1001 + static_cast<uint64_t>(resend), now);
  }
  EXPECT_TRUE(peer.is_lost());
  EXPECT_NEAR(peer.uncarried_seconds(), times.patience_seconds(), 0.03);
}

// Or the deadline of who waits for it, which is no shorter, would end the job before all was tried.
TEST(RailPeer, WhoLooksTooSeldomLosesAPeerBeforeItsDeadline) {
  const RailTimes times;
  RailPeer peer(1, 7, times, kChunk);
  Waited waited(0);
  double now = 0;
  peer.tick(now);
  for (bool is_late = false; !is_late;) {
    peer.tick(now += 0.1);
    is_late = waited.look(now) > times.patience_seconds();
  }
  EXPECT_TRUE(peer.is_lost());
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
