// Agents of several ranks over virtual links, by seeds: frames are late, overtake each other, some are damaged. Breaks
// if a byte outside of a segment changes, a signal comes before its bytes, an addition is lost or done twice, or a
// request is never answered.
#include "comm/window/window_agent.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <deque>

#include "base/random.h"
#include "testing/seeded_draws.h"

namespace moraine {
namespace {

constexpr int kAgents = 3, kPuts = 12, kAdds = 20, kGarbage = 50;
constexpr int64_t kBlock = 40000, kGuard = 64;  // three parts
constexpr uint64_t kWindowGeneration = 77;
enum Segments { kBlocks, kWords, kNarrow };

std::byte byte_of(int from, int64_t round, int64_t i) {
  return static_cast<std::byte>(from * 71 + round * 29 + i * 3 + i / 253);
}

struct PutFlight {
  int64_t at;
  int from, to;
  std::vector<std::byte> frame;
};

// A rank: a segment with a block for each rank, one of words (signals; a sum; one that is swapped), and a narrow one
// between guards.
struct AgentEnd {
  explicit AgentEnd(int rank) : me(rank), agent(static_cast<uint64_t>(rank) * 1000000 + 1) {
    blocks.resize(kAgents * kBlock);
    words.resize(kAgents + 2);
    narrow.assign(3 * kGuard, std::byte{0xab});
    agent.add_segment(kBlocks, kWindowGeneration, blocks);
    agent.add_segment(kWords, kWindowGeneration, std::as_writable_bytes(std::span(words)));
    agent.add_segment(kNarrow, kWindowGeneration, Bytes(narrow).subspan(kGuard, kGuard));
  }
  bool guards_hold() const {
    for (int64_t i = 0; i < 3 * kGuard; ++i) {
      if ((i < kGuard || i >= 2 * kGuard) && narrow[static_cast<size_t>(i)] != std::byte{0xab})
        return false;
    }
    return true;
  }

  int me;
  WindowAgent agent;
  std::vector<std::byte> blocks, narrow;
  std::vector<uint64_t> words;
  int64_t puts[kAgents] = {}, seen[kAgents] = {};  // to and from each rank
  int64_t adds = 0, refused = 0, bad = 0;
  uint64_t asked = 0, swap_value = 0;  // the request under way, or 0
  int64_t swaps = 0, garbage = 0;
  bool is_swap = false;
};

GlobalAddress at(int rank, int segment, int64_t offset) {
  return {rank, segment, offset, kWindowGeneration};
}

class AgentWorld {
 public:
  explicit AgentWorld(uint64_t seed) : draws_{seed} {
    for (int r = 0; r < kAgents; ++r) ends_.emplace_back(r);
  }

  bool run() {
    for (now_ = 0; now_ < 100000; ++now_) {
      for (AgentEnd& end : ends_) {
        if (draws_.one_in(3)) act(end);
        look(end);
      }
      deliver();
      if (::testing::Test::HasFatalFailure()) return false;
      if (done()) return true;
    }
    return false;
  }

  void check() {
    for (AgentEnd& end : ends_) {
      EXPECT_TRUE(end.guards_hold());
      EXPECT_EQ(end.refused, end.bad);
      for (int r = 0; r < kAgents; ++r) EXPECT_EQ(end.agent.puts_in_flight(r), 0);
    }
    EXPECT_EQ(ends_[1].words[kAgents], kAgents * kAdds * 5);
    EXPECT_EQ(ends_[2].words[kAgents + 1], kAgents * kAdds);
  }

 private:
  bool done() {
    for (AgentEnd& e : ends_) {
      if (e.adds < kAdds || e.swaps < kAdds || e.asked != 0 || e.refused < e.bad) return false;
      for (int r = 0; r < kAgents; ++r) {
        if (e.seen[r] < kPuts || e.agent.puts_in_flight(r) > 0) return false;
      }
    }
    return flights_.empty();
  }

  void send(int from, int to, std::vector<std::byte> frame) {
    flights_.push_back({now_ + 1 + draws_.below(40), from, to, std::move(frame)});
  }

  uint64_t ask(AgentEnd& end, const WindowRequest& request) {
    std::vector<std::byte> frame;
    const uint64_t id = end.agent.ask(request, &frame);
    send(end.me, request.address.rank, std::move(frame));
    return id;
  }

  void act(AgentEnd& end) {
    const int to = static_cast<int>(draws_.below(kAgents));
    switch (draws_.below(4)) {
      case 0:
        return put(end, to);
      case 1:
        return ask_for_word(end);
      case 2:
        if (end.bad < kGarbage) ask_for_too_much(end, to);
        return;
      default:
        if (end.garbage++ < kGarbage) send(end.me, to, garbage());
    }
  }

  // The next block, when the target has seen the one before, in parts of any size.
  void put(AgentEnd& end, int to) {
    const int64_t round = end.puts[to];
    if (round == kPuts || ends_[static_cast<size_t>(to)].seen[end.me] < round) return;
    ++end.puts[to];
    std::vector<std::byte> block(kBlock);
    for (int64_t i = 0; i < kBlock; ++i) block[static_cast<size_t>(i)] = byte_of(end.me, round, i);
    const GlobalAddress signal = at(to, kWords, 8 * end.me);
    uint64_t group = 0;
    for (int64_t done = 0; done < kBlock;) {
      const int64_t n = std::min(kBlock - done, 1 + draws_.below(kMostPartBytes));
      const uint64_t id =
          ask(end,
              {.action = WindowAction::kPut,
               .address = at(to, kBlocks, end.me * kBlock + done),
               .data = ConstBytes(block).subspan(static_cast<size_t>(done), static_cast<size_t>(n)),
               .signal = &signal,
               .group = group,
               .whole_bytes = kBlock});
      group = group == 0 ? id : group;
      done += n;
    }
  }

  void ask_for_word(AgentEnd& end) {
    if (end.asked != 0) return;
    end.is_swap = end.adds == kAdds || (end.swaps < kAdds && draws_.one_in(2));
    if (end.is_swap && end.swaps == kAdds) return;
    if (end.is_swap) {
      end.asked = ask(end, {.action = WindowAction::kCompareSwap,
                            .address = at(2, kWords, 8 * (kAgents + 1)),
                            .value = end.swap_value + 1,
                            .expected = end.swap_value});
    } else {
      end.asked = ask(
          end,
          {.action = WindowAction::kFetchAdd, .address = at(1, kWords, 8 * kAgents), .value = 5});
    }
  }

  // Over the border of the narrow segment, of another generation, of no segment: never memory.
  void ask_for_too_much(AgentEnd& end, int to) {
    static const std::vector<std::byte> data(kGuard, std::byte{1});
    GlobalAddress a = at(to, kNarrow, 0);
    const int64_t kind = draws_.below(4);
    if (kind == 0) a.offset = 1 + draws_.below(kGuard);
    if (kind == 1) a.offset = -1 - draws_.below(kGuard);
    if (kind == 2) a.generation -= 1;
    if (kind == 3) a.segment = 9;
    ask(end, {.action = WindowAction::kPut, .address = a, .data = data, .whole_bytes = kGuard});
    ++end.bad;
  }

  // A frame with a few bytes that are not as they were, or one that was never any.
  std::vector<std::byte> garbage() {
    WindowFrame head = {.action = static_cast<WindowAction>(draws_.below(7))};
    head.id = static_cast<uint64_t>(draws_.below(1 << 20)) << 40;
    head.place = {.offset = draws_.below(4 * kGuard) - kGuard,
                  .generation = kWindowGeneration - static_cast<uint64_t>(draws_.below(2)),
                  .segment = kNarrow};
    head.payload_bytes = static_cast<uint32_t>(draws_.below(2 * kGuard));
    head.payload_wanted = static_cast<uint32_t>(draws_.below(int64_t{1} << 32));
    head.group = head.id | 1;
    head.whole_bytes = draws_.one_in(2) ? head.payload_bytes : draws_.below(int64_t{1} << 40);
    std::vector<std::byte> frame(sizeof head + static_cast<size_t>(draws_.below(2 * kGuard)));
    std::memcpy(frame.data(), &head, sizeof head);
    if (draws_.one_in(3)) frame.resize(static_cast<size_t>(draws_.below(sizeof head + 1)));
    return frame;
  }

  void look(AgentEnd& end) {
    for (int from = 0; from < kAgents; ++from) {
      const int64_t round = end.seen[from];
      if (load_word(&end.words[static_cast<size_t>(from)]) <= static_cast<uint64_t>(round))
        continue;
      ++end.seen[from];
      for (int64_t i = 0; i < kBlock; ++i)
        ASSERT_EQ(end.blocks[static_cast<size_t>(from * kBlock + i)], byte_of(from, round, i));
    }
    if (end.asked == 0) return;
    const std::optional<WindowAnswer> answer = end.agent.take_answer(end.asked);
    if (!answer) return;
    end.asked = 0;
    ASSERT_EQ(answer->status, WindowStatus::kOk);
    if (!end.is_swap) {
      ++end.adds;
    } else if (answer->value == end.swap_value) {
      ++end.swaps;
    } else {
      end.swap_value = answer->value;
    }
  }

  void deliver() {
    for (size_t i = 0; i < flights_.size();) {
      if (flights_[i].at > now_) {
        ++i;
        continue;
      }
      const PutFlight f = std::move(flights_[i]);
      flights_.erase(flights_.begin() + static_cast<int64_t>(i));
      bool signalled = false;
      AgentEnd& end = ends_[static_cast<size_t>(f.to)];
      const int before = end.agent.puts_in_flight(f.from);
      const bool had = end.agent.take_refused().has_value();
      std::vector<std::byte> answer = end.agent.handle(f.from, f.frame, &signalled);
      ASSERT_FALSE(had);
      if (end.agent.puts_in_flight(f.from) < before && end.agent.take_refused()) ++end.refused;
      if (!answer.empty()) send(f.to, f.from, std::move(answer));
    }
  }

  SeededDraws draws_;
  int64_t now_ = 0;
  std::deque<AgentEnd> ends_;
  std::vector<PutFlight> flights_;
};

TEST(WindowAgent, WhateverTheOrderOfFramesNothingIsLostDoubledOrOutside) {
  const char* more = std::getenv("MORAINE_WINDOW_SEEDS");
  const int64_t seeds = more != nullptr ? std::atoll(more) : 100;
  for (int64_t seed = 0; seed < seeds; ++seed) {
    AgentWorld world(static_cast<uint64_t>(seed));
    ASSERT_TRUE(world.run()) << "MORAINE_WINDOW_SEEDS: seed " << seed;
    world.check();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

// One agent asks, another does: what is asked, and the frame that goes back.
WindowStatus status_of(WindowAgent& owner, const WindowRequest& request) {
  WindowAgent asks(1);
  std::vector<std::byte> frame;
  const uint64_t id = asks.ask(request, &frame);
  bool signalled = false;
  asks.handle(request.address.rank, owner.handle(0, frame, &signalled), &signalled);
  if (const auto refused = asks.take_refused()) return refused->status;
  const std::optional<WindowAnswer> answer = asks.take_answer(id);
  return answer ? answer->status : WindowStatus::kOk;
}

TEST(WindowAgent, ARemovedSegmentIsNoMemory) {
  WindowAgent owner(1);
  std::vector<std::byte> memory(64), data(8, std::byte{5}), out(8);
  owner.add_segment(0, kWindowGeneration, memory);
  const WindowRequest put = {
      .action = WindowAction::kPut, .address = at(1, 0, 56), .data = data, .whole_bytes = 8};
  const WindowRequest get = {.action = WindowAction::kGet, .address = at(1, 0, 56), .out = out};
  EXPECT_EQ(status_of(owner, put), WindowStatus::kOk);
  EXPECT_EQ(status_of(owner, get), WindowStatus::kOk);
  EXPECT_EQ(out, data);
  owner.remove_segment(0);
  EXPECT_EQ(status_of(owner, put), WindowStatus::kNoSegment);
  EXPECT_EQ(status_of(owner, get), WindowStatus::kNoSegment);
  owner.add_segment(0, kWindowGeneration + 1, memory);
  EXPECT_EQ(status_of(owner, put), WindowStatus::kOldGeneration);
}

// The bits of a sum of offset and size must not wrap.
TEST(WindowAgent, BoundsHoldForNumbersThatWrap) {
  WindowAgent owner(1);
  std::vector<std::byte> memory(64), data(8);
  owner.add_segment(0, kWindowGeneration, memory);
  for (const int64_t offset : {int64_t{57}, int64_t{64}, int64_t{-1}, INT64_MAX, INT64_MAX - 7,
                               INT64_MIN, INT64_MIN + 8}) {
    EXPECT_EQ(status_of(owner, {.action = WindowAction::kPut,
                                .address = at(1, 0, offset),
                                .data = data,
                                .whole_bytes = 8}),
              WindowStatus::kOutside)
        << offset;
    EXPECT_NE(status_of(owner, {.action = WindowAction::kFetchAdd, .address = at(1, 0, offset)}),
              WindowStatus::kOk)
        << offset;
  }
}

// A rank that begins puts and never ends them takes no more memory than its share.
TEST(WindowAgent, PutsThatNeverEndAreLimited) {
  WindowAgent owner(1), asks(1);
  std::vector<std::byte> memory(64), data(8);
  owner.add_segment(0, kWindowGeneration, memory);
  size_t taken = 0;
  for (size_t i = 0; i < 2 * kMostOpenPuts; ++i)
    taken += status_of(owner, {.action = WindowAction::kPut,
                               .address = at(1, 0, 0),
                               .data = data,
                               .group = 1000 + i,
                               .whole_bytes = 16}) == WindowStatus::kOk;
  EXPECT_EQ(taken, kMostOpenPuts);
}

}  // namespace
}  // namespace moraine
