// Operations of three ranks while all rails between some of them are cut, in virtual time, by seeds. Breaks if an
// operation that was held for as long as ranks are patient ends with an error, with other bits or twice; if a rank
// that is given up is given up early or late; or if ranks that end are more than one operation apart.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "comm/rails/rail_peer.h"
#include "comm/rails/test_rail_pair.h"
#include "testing/seeded_draws.h"

namespace moraine {
namespace {

constexpr int kHeldRanks = 3;
constexpr int64_t kHeldChunk = 512;
constexpr double kHeldStep = 4e-3;
constexpr double kBack = 0.3;  // until a healed rail carries: backoff, connection, proof

RailTimes short_times(int resends) {
  RailTimes times;
  times.renew_seconds = 0.15;
  times.last_retry_seconds = 0.1;
  times.hold_seconds = 0.25;
  times.interval_seconds = 0.1;
  times.resends = resends;
  return times;
}

// Bits of each operation follow from those of the one before.
uint64_t next_state(uint64_t state) { return state * 6364136223846793005u + 1442695040888963407u; }

int64_t size_of(uint64_t state, int from, int to) {
  constexpr int64_t kSizes[] = {1, kHeldChunk / 8, 200, kHeldChunk + 1, 12 * kHeldChunk};
  return kSizes[(state >> (33 + 3 * (from * kHeldRanks + to) % 24)) % 5];
}

std::byte byte_of(uint64_t state, int from, int to, int64_t i) {
  return static_cast<std::byte>((state >> 56) +
                                static_cast<uint64_t>(from * 37 + to * 11 + i * 13));
}

uint64_t folded(uint64_t bits, std::byte b) {
  return (bits ^ static_cast<uint64_t>(b)) * 1099511628211u;
}

// A rank that exchanges blocks with all others, one operation after the other.
class Member {
 public:
  Member(int me, int rails, const RailTimes& times, uint64_t state) : me_(me), state_(state) {
    for (int r = 0; r < kHeldRanks; ++r)
      peers_.push_back(std::make_unique<RailPeer>(rails, RailPair::kGeneration, times, kHeldChunk));
  }
  RailPeer& peer(int r) { return *peers_[static_cast<size_t>(r)]; }
  int64_t committed() const { return committed_; }
  uint64_t bits() const { return bits_; }  // of all that it received

  void run(SeededDraws& draws) {
    if (!begun_ && draws.one_in(3)) return;  // it computes
    if (!begun_) begin();
    bool over = true;
    for (int r = 0; r < kHeldRanks; ++r) over = (r == me_ || is_over(r)) && over;
    if (over) commit();
  }

 private:
  struct Exchange {  // with one other rank
    std::vector<std::byte> input, output;
    uint64_t number = 0;  // 0: the input was copied
    bool is_open = false, is_taken = false;
  };

  void begin() {
    begun_ = true;
    for (int r = 0; r < kHeldRanks; ++r) {
      if (r == me_) continue;
      Exchange& x = with_[r] = {};
      x.input.resize(static_cast<size_t>(size_of(state_, me_, r)));
      for (size_t i = 0; i < x.input.size(); ++i)
        x.input[i] = byte_of(state_, me_, r, static_cast<int64_t>(i));
      Lanes& lanes = peer(r).lanes();
      x.number = lanes.send(0, label(), x.input);
      if (static_cast<int64_t>(x.input.size()) <= lanes.copied_bytes()) x.number = 0;
    }
  }

  bool is_over(int r) {
    Exchange& x = with_[r];
    Lanes& lanes = peer(r).lanes();
    MessageHead head;
    if (!x.is_open && lanes.has_next(0, &head)) {
      EXPECT_EQ(head.label, label()) << "ranks are at different operations";
      x.output.resize(static_cast<size_t>(head.bytes));
      lanes.open(0, x.output);
      x.is_open = true;
    }
    if (x.is_open && !x.is_taken && lanes.arrived(0) == static_cast<int64_t>(x.output.size())) {
      lanes.close(0);
      x.is_taken = true;
    }
    return x.is_taken && (x.number == 0 || lanes.is_sent(0, x.number));
  }

  // Inputs are the caller's again: whoever still reads them is found by the hash of the payload, or by ASan.
  void commit() {
    for (int r = 0; r < kHeldRanks; ++r) {
      if (r == me_) continue;
      Exchange& x = with_[r];
      EXPECT_EQ(static_cast<int64_t>(x.output.size()), size_of(state_, r, me_));
      for (const std::byte b : x.output) bits_ = folded(bits_, b);
      std::fill(x.input.begin(), x.input.end(), std::byte{0xdd});
      x.input = {};
    }
    state_ = next_state(state_);
    ++committed_;
    begun_ = false;
  }

  uint64_t label() const { return static_cast<uint64_t>(committed_) + 1; }

  int me_;
  uint64_t state_, bits_ = 0;
  int64_t committed_ = 0;
  bool begun_ = false;
  Exchange with_[kHeldRanks];
  std::vector<std::unique_ptr<RailPeer>> peers_;
};

class HeldWorld {
 public:
  HeldWorld(uint64_t seed, int rails, const RailTimes& times)
      : draws{seed}, state_(next_state(seed)) {
    for (int r = 0; r < kHeldRanks; ++r) members_.emplace_back(r, rails, times, state_);
    for (int a = 0; a < kHeldRanks; ++a) {
      for (int b = a + 1; b < kHeldRanks; ++b)
        pairs_.push_back({a, b, RailPair(draws, member(a).peer(b), member(b).peer(a))});
    }
  }

  SeededDraws draws;
  double now() const { return now_; }
  Member& member(int r) { return members_[static_cast<size_t>(r)]; }
  // When it gave up a peer, or heard that somebody had; negative: it has not.
  double ended(int r) const { return ended_[r]; }
  bool all_ended() const { return ended_[0] >= 0 && ended_[1] >= 0 && ended_[2] >= 0; }
  bool any_gave_up() const { return any_gave_up_; }  // a peer, by its silence
  bool any_ended() const { return ended_[0] >= 0 || ended_[1] >= 0 || ended_[2] >= 0; }
  int64_t most_committed() {
    int64_t most = 0;
    for (const Member& m : members_) most = std::max(most, m.committed());
    return most;
  }
  int64_t least_committed() {
    int64_t least = INT64_MAX;
    for (const Member& m : members_) least = std::min(least, m.committed());
    return least;
  }
  int most_resends() const { return most_resends_; }

  // All rails of one rank, or between two, in both directions or (some of them) in one.
  void cut(double until) {
    const int lonely = static_cast<int>(draws.below(kHeldRanks));
    const int heard = draws.one_in(2) ? (lonely + 1) % kHeldRanks : -1;  // by this one it still is
    const bool one_way = draws.one_in(3);
    for (Pair& p : pairs_) {
      if ((p.a != lonely && p.b != lonely) || p.a == heard || p.b == heard) continue;
      for (int rail = 0; rail < p.rails.rails(); ++rail) {
        const int from = static_cast<int>(draws.below(2));
        p.rails.swallow(from, rail, until);
        if (!one_way || draws.one_in(2)) p.rails.swallow(1 - from, rail, until);
      }
    }
  }
  void sleep(int r, double until) { asleep_[r] = until; }
  void kill(int r) { ended_[r] = now_; }  // its host refuses connections from now on

  void run_until(double end, int64_t operations = INT64_MAX) {
    for (; now_ < end && !all_ended() && least_committed() < operations; now_ += kHeldStep) {
      for (Pair& p : pairs_) {
        if (ended_[p.a] < 0 && ended_[p.b] < 0) p.rails.connect(now_);
      }
      for (int r = 0; r < kHeldRanks; ++r) step(r);
      if (::testing::Test::HasFailure()) return;
    }
  }

  // The bits of each are those that it would have without any cut.
  void expect_quiet_bits() {
    for (int me = 0; me < kHeldRanks; ++me) {
      uint64_t state = state_, want = 0;
      for (int64_t i = 0; i < member(me).committed(); ++i, state = next_state(state)) {
        for (int r = 0; r < kHeldRanks; ++r) {
          const int64_t bytes = r == me ? 0 : size_of(state, r, me);
          for (int64_t at = 0; at < bytes; ++at) want = folded(want, byte_of(state, r, me, at));
        }
      }
      EXPECT_EQ(member(me).bits(), want) << "rank " << me;
    }
  }

 private:
  struct Pair {
    int a, b;
    RailPair rails;
  };

  void step(int r) {
    if (ended_[r] >= 0 || asleep_[r] > now_) return;
    for (Pair& p : pairs_) {
      if (p.a != r && p.b != r) continue;
      const int other = p.a == r ? p.b : p.a;
      p.rails.hear(p.a == r ? 0 : 1, now_);
      const RailPeer& peer = member(r).peer(other);
      most_resends_ = std::max(most_resends_, peer.resends());
      // Who has ended says so over what carries; its host refuses connections.
      bool carries = false;
      for (int rail = 0; rail < p.rails.rails(); ++rail)
        carries = carries || p.rails.passes(rail, now_);
      any_gave_up_ = any_gave_up_ || peer.is_lost();
      if (peer.is_lost() || (ended_[other] >= 0 && carries)) ended_[r] = now_;
    }
    if (ended_[r] >= 0) return;
    member(r).run(draws);
    for (Pair& p : pairs_) {
      if (p.a == r || p.b == r) p.rails.say(p.a == r ? 0 : 1, now_);
    }
  }

  const uint64_t state_;
  std::vector<Member> members_;
  std::vector<Pair> pairs_;
  double now_ = 0, asleep_[kHeldRanks] = {}, ended_[kHeldRanks] = {-1, -1, -1};
  int most_resends_ = 0;
  bool any_gave_up_ = false;
};

struct Sums {
  int64_t operations = 0, resends = 0, held = 0, given_up = 0, apart = 0, killed = 0;
};

// Cuts that heal in time: up to just before the last resend is over.
void run_healed(uint64_t seed, Sums* sums) {
  const RailTimes times = short_times(1 + static_cast<int>(seed % 3));
  HeldWorld world(seed, 1 + static_cast<int>(seed % 2), times);
  world.run_until(0.05 + world.draws.between(0, 0.05));
  const double seconds = world.draws.between(0, times.patience_seconds() - kBack);
  world.cut(world.now() + seconds);
  if (world.draws.one_in(4))
    world.sleep(static_cast<int>(world.draws.below(kHeldRanks)), world.now() + seconds / 2);
  world.run_until(world.now() + seconds + kBack);
  sums->held += seconds > times.dead_seconds;
  const int64_t goal = world.most_committed() + 3;
  world.run_until(world.now() + 2, goal);
  ASSERT_FALSE(world.any_ended()) << "seed " << seed << ": a rank was given up at " << world.now();
  ASSERT_GE(world.least_committed(), goal) << "seed " << seed << ": they stand still";
  world.expect_quiet_bits();
  sums->operations += goal;
  sums->resends += world.most_resends();
}

// A cut that stays: all end, those at its two sides when their patience does.
void run_given_up(uint64_t seed, Sums* sums) {
  const RailTimes times = short_times(1 + static_cast<int>(seed / 4 % 3));
  HeldWorld world(seed, 1 + static_cast<int>(seed % 2), times);
  world.run_until(0.05 + world.draws.between(0, 0.1));
  const double cut_at = world.now(), due = cut_at + times.patience_seconds();
  world.cut(1e9);
  world.run_until(due + 1);
  ASSERT_TRUE(world.all_ended()) << "seed " << seed;
  for (int r = 0; r < kHeldRanks; ++r) {
    EXPECT_GT(world.ended(r), due - 2 * times.heartbeat_seconds) << "seed " << seed;
    EXPECT_LT(world.ended(r), due + kBack) << "seed " << seed;
  }
  EXPECT_EQ(world.most_resends(), times.resends) << "seed " << seed;
  const int64_t apart = world.most_committed() - world.least_committed();
  EXPECT_LE(apart, 1) << "seed " << seed;
  world.expect_quiet_bits();
  ++sums->given_up;
  sums->apart += apart;
}

// A rank dies in a hold, or is stopped and ended there: its host says so when anything carries again, and until then
// nobody has given it up.
void run_killed(uint64_t seed, Sums* sums) {
  const RailTimes times = short_times(3);
  HeldWorld world(seed, 1 + static_cast<int>(seed % 2), times);
  world.run_until(0.05 + world.draws.between(0, 0.1));
  const double cut_at = world.now();
  const double seconds = world.draws.between(times.dead_seconds, times.patience_seconds() - kBack);
  world.cut(cut_at + seconds);
  world.run_until(cut_at + world.draws.between(0, seconds));
  const int rank = static_cast<int>(world.draws.below(kHeldRanks));
  world.kill(rank);
  world.run_until(cut_at + seconds + kBack);
  EXPECT_FALSE(world.any_gave_up()) << "seed " << seed;
  EXPECT_LE(world.most_committed() - world.least_committed(), 1) << "seed " << seed;
  world.expect_quiet_bits();
  ++sums->killed;
}

TEST(HeldOperation, EndsWithTheSameBitsOrEndsForAll) {
  const char* more = std::getenv("MORAINE_RAIL_SEEDS");
  const int64_t seeds = more != nullptr ? std::atoll(more) : 10000;
  Sums sums;
  for (int64_t seed = 0; seed < seeds && !HasFailure(); ++seed) {
    if (seed % 4 == 0) {
      run_given_up(static_cast<uint64_t>(seed), &sums);
    } else if (seed % 8 == 1) {
      run_killed(static_cast<uint64_t>(seed), &sums);
    } else {
      run_healed(static_cast<uint64_t>(seed), &sums);
    }
  }
  // The cuts were real, and hit operations that one side had ended and the other had not.
  EXPECT_GT(sums.resends, seeds / 4);
  EXPECT_GT(sums.apart, seeds / 100);
  std::printf(
      "%ld seeds: %ld operations, %ld cuts held, %ld resends, %ld ranks killed, %ld given up, %ld "
      "of "
      "them one operation apart\n",
      long(seeds), long(sums.operations), long(sums.held), long(sums.resends), long(sums.killed),
      long(sums.given_up), long(sums.apart));
}

}  // namespace
}  // namespace moraine
