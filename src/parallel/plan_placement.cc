// PlanPlacement: parts of experts go from the busiest member to others, one after another.
#include "parallel/plan_placement.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/random.h"

namespace moraine {
namespace {

// Swaps are tried for so many (member, expert) pairs at most: with more there are parts of every size.
constexpr int64_t kSwapPairs = 1024;

// Rows of one expert that one member serves, by source.
struct Part {
  int64_t source = 0, rows = 0;
};

// Some of them, to be given to another member.
struct Move {
  int64_t expert = -1, to = -1;
  int64_t rows = 0;
  int64_t peak = 0;  // the busier of the two afterwards
  bool new_slot = false, new_weights = false;
  std::vector<int64_t> sources = {};
};

class Planner {
 public:
  Planner(const PlacementShape& shape, const PlacementLoad& load, const ExpertPlacement& now)
      : shape_(shape), load_(load), placement_(static_placement(shape)), level_(level_work(load)) {
    const size_t pairs = static_cast<size_t>(shape.members * shape.experts);
    serves_.assign(pairs, 0), had_.assign(pairs, 0);
    free_.assign(static_cast<size_t>(shape.members), shape.slots);
    for (int64_t m = 0; m < shape.members; ++m)
      for (const int32_t e : guests_of(shape, now, m)) had_[at(m, e)] = 1;
    for (size_t i = 0; i < placement_.server.size(); ++i)
      ++serves_[at(placement_.server[i], static_cast<int64_t>(i) % shape.experts)];
    work_ = member_work(shape, load, placement_);
  }

  ExpertPlacement plan() {
    // Each move lowers the busiest, or the number of the busiest; the bound is for equal works.
    const int64_t most = 4 * shape_.members * shape_.experts;
    for (int64_t i = 0; i < most; ++i) {
      const int64_t from = busiest();
      const Move move = best_move(from);
      if (move.expert >= 0) {
        apply(move, from);
      } else if (!swap(from)) {
        break;
      }
    }
    return placement_;
  }

 private:
  size_t at(int64_t first, int64_t expert) const {
    return static_cast<size_t>(first * shape_.experts + expert);
  }
  int64_t cost(int64_t member) const { return load_.cost[static_cast<size_t>(member)]; }
  int64_t work(int64_t member) const { return work_[static_cast<size_t>(member)]; }
  int64_t busiest() const { return std::max_element(work_.begin(), work_.end()) - work_.begin(); }

  bool holds(int64_t member, int64_t expert) const {
    return shape_.home(expert) == member || serves_[at(member, expert)] > 0;
  }
  bool can_take(int64_t member, int64_t expert) const {
    if (!shape_.may_serve(member, expert)) return false;
    return holds(member, expert) || free_[static_cast<size_t>(member)] > 0;
  }

  // What `member` serves of an expert, largest first; sources without rows stay where they are.
  std::vector<Part> parts(int64_t member, int64_t expert) const {
    std::vector<Part> found;
    if (serves_[at(member, expert)] == 0) return found;
    for (int64_t s = 0; s < shape_.members; ++s) {
      const int64_t rows = load_.rows[at(s, expert)];
      if (placement_.server[at(s, expert)] == member && rows > 0) found.push_back({s, rows});
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const Part& a, const Part& b) { return a.rows > b.rows; });
    return found;
  }

  // As much of `parts` as fits into what `from` has too much and `to` too little; else the smallest part.
  Move fill(int64_t from, int64_t to, int64_t expert, const std::vector<Part>& parts) const {
    const int64_t room =
        std::min((work(from) - level_) / cost(from), (level_ - work(to)) / cost(to));
    Move move{.expert = expert, .to = to};
    for (const Part& p : parts) {
      if (move.rows + p.rows > room) continue;
      move.rows += p.rows;
      move.sources.push_back(p.source);
    }
    if (move.rows == 0) {
      move.rows = parts.back().rows;
      move.sources = {parts.back().source};
    }
    move.peak = std::max(work(from) - move.rows * cost(from), work(to) + move.rows * cost(to));
    move.new_slot = !holds(to, expert);
    move.new_weights = move.new_slot && had_[at(to, expert)] == 0;
    return move;
  }

  static bool better(const Move& a, const Move& b) {
    if (b.expert < 0) return true;
    const auto key = [](const Move& m) {
      return std::array<int64_t, 4>{m.peak, m.new_slot, m.new_weights, -m.rows};
    };
    return key(a) < key(b);
  }

  Move best_move(int64_t from) const {
    Move best;
    for (int64_t e = 0; e < shape_.experts; ++e) {
      const std::vector<Part> here = parts(from, e);
      if (here.empty()) continue;
      for (int64_t to = 0; to < shape_.members; ++to) {
        if (to == from || !can_take(to, e)) continue;
        Move move = fill(from, to, e, here);
        if (move.peak < work(from) && better(move, best)) best = std::move(move);
      }
    }
    return best;
  }

  void give(int64_t source, int64_t expert, int64_t to) {
    int32_t& server = placement_.server[at(source, expert)];
    const int64_t from = server, rows = load_.rows[at(source, expert)];
    if (!holds(to, expert)) --free_[static_cast<size_t>(to)];
    ++serves_[at(to, expert)];
    if (--serves_[at(from, expert)] == 0 && shape_.home(expert) != from)
      ++free_[static_cast<size_t>(from)];
    work_[static_cast<size_t>(from)] -= rows * cost(from);
    work_[static_cast<size_t>(to)] += rows * cost(to);
    server = static_cast<int32_t>(to);
  }

  void apply(const Move& move, int64_t from) {
    const bool was_here = holds(from, move.expert);
    for (const int64_t s : move.sources) give(s, move.expert, move.to);
    // Sources without rows follow a guest that serves nobody else any more: its slot is free.
    if (was_here && shape_.home(move.expert) != from && parts(from, move.expert).empty()) {
      for (int64_t s = 0; s < shape_.members; ++s)
        if (placement_.server[at(s, move.expert)] == from)
          give(s, move.expert, shape_.home(move.expert));
    }
  }

  // A part where it is served.
  struct Served {
    int64_t source, expert, member;
    int64_t rows;
  };
  std::vector<Served> all_parts(int64_t member) const {
    std::vector<Served> found;
    for (int64_t e = 0; e < shape_.experts; ++e)
      for (const Part& p : parts(member, e)) found.push_back({p.source, e, member, p.rows});
    return found;
  }

  // One part of the busiest for a smaller one of another, where that lowers the busier of both.
  bool swap(int64_t from) {
    if (shape_.members * shape_.experts > kSwapPairs) return false;
    for (const Served& mine : all_parts(from)) {
      for (int64_t to = 0; to < shape_.members; ++to)
        if (to != from && shape_.may_serve(to, mine.expert) && swap_with(mine, to)) return true;
    }
    return false;
  }

  bool swap_with(const Served& mine, int64_t to) {
    const int64_t from = mine.member;
    for (const Served& theirs : all_parts(to)) {
      const int64_t rows = mine.rows - theirs.rows;
      const int64_t peak = std::max(work(from) - rows * cost(from), work(to) + rows * cost(to));
      if (peak >= work(from) || !shape_.may_serve(from, theirs.expert)) continue;
      if (try_swap(mine, theirs)) return true;
    }
    return false;
  }

  // False, and nothing has changed, if the slots do not allow it.
  bool try_swap(const Served& a, const Served& b) {
    give(a.source, a.expert, b.member);
    give(b.source, b.expert, a.member);
    if (free_[static_cast<size_t>(a.member)] >= 0 && free_[static_cast<size_t>(b.member)] >= 0)
      return true;
    give(b.source, b.expert, b.member);
    give(a.source, a.expert, a.member);
    return false;
  }

  const PlacementShape& shape_;
  const PlacementLoad& load_;
  ExpertPlacement placement_;
  const int64_t level_;
  std::vector<int64_t> work_;    // [M]
  std::vector<int64_t> free_;    // [M] guest slots
  std::vector<int32_t> serves_;  // [M, E] sources
  std::vector<uint8_t> had_;     // [M, E] was a guest before
};

}  // namespace

ExpertPlacement plan_placement(const PlacementShape& shape, const PlacementLoad& load,
                               const ExpertPlacement& now) {
  for (const int64_t c : load.cost) MR_CHECK(c > 0, "a row that costs %ld", long(c));
  if (shape.members == 1) return static_placement(shape);
  ExpertPlacement plan = Planner(shape, load, now).plan();
  MR_CHECK(is_valid(shape, plan));
  return plan;
}

ExpertPlacement shuffled_placement(const PlacementShape& shape, uint64_t seed, uint64_t index) {
  ExpertPlacement placement = static_placement(shape);
  const int64_t E = shape.experts;
  std::vector<int64_t> free(static_cast<size_t>(shape.members), shape.slots);
  std::vector<uint8_t> holds(placement.server.size(), 0);  // [M, E]
  uint64_t draw = 0;
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(
        random_below(static_cast<uint64_t>(n), seed, Stream::kChoice, index, draw++));
  };
  for (int64_t i = 0; i < 2 * shape.members * E; ++i) {
    const int64_t s = below(shape.members), e = below(E), to = below(shape.members);
    uint8_t& held = holds[static_cast<size_t>(to * E + e)];
    if (to == shape.home(e) || !shape.may_serve(to, e)) continue;
    int64_t& left = free[static_cast<size_t>(to)];
    if (held == 0 && left == 0) continue;
    if (held == 0) --left;
    held = 1;
    placement.server[static_cast<size_t>(s * E + e)] = static_cast<int32_t>(to);
  }
  return placement;
}

}  // namespace moraine
