// PlanGuests: rows go from the busiest member to others, one expert after another.
#include "parallel/plan_guests.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/random.h"

namespace moraine {
namespace {

constexpr int64_t kLeastPart = 64;  // a guest has at least one part in so many of the level work

struct GuestMove {
  int64_t expert = -1, to = -1, rows = 0;
  int64_t peak = 0;  // the busier of the two afterwards
  bool new_slot = false, new_weights = false;
};

class GuestPlanner {
 public:
  GuestPlanner(const SplitShape& shape, std::span<const int64_t> rows,
               std::span<const int64_t> cost, const GuestTable& now)
      : shape_(shape), cost_(cost), now_(now) {
    const size_t pairs = static_cast<size_t>(shape.members * shape.experts);
    rows_.assign(pairs, 0), had_.assign(pairs, 0);
    work_.assign(static_cast<size_t>(shape.members), 0);
    free_.assign(static_cast<size_t>(shape.members), shape.slots);
    double rate = 0, all = 0;
    for (int64_t m = 0; m < shape.members; ++m) rate += 1 / static_cast<double>(cost_of(m));
    for (int64_t e = 0; e < shape.experts; ++e) {
      const int64_t home = shape.home(e), n = rows[static_cast<size_t>(e)];
      rows_[at(home, e)] = n;
      work(home) += n * cost_of(home);
      all += static_cast<double>(n);
    }
    level_ = static_cast<int64_t>(all / rate);
    for (size_t i = 0; i < now.expert.size(); ++i)
      if (now.expert[i] >= 0) had_[at(static_cast<int64_t>(i) / shape.slots, now.expert[i])] = 1;
  }

  GuestTable plan() {
    // Each move levels a member or takes all rows of an expert from one; the bound is for equal works.
    const int64_t most = 4 * shape_.members * (shape_.slots + 1);
    for (int64_t i = 0; i < most; ++i) {
      const int64_t from = std::max_element(work_.begin(), work_.end()) - work_.begin();
      const GuestMove move = best_move(from);
      if (move.expert < 0) break;
      apply(move, from);
    }
    return slots();
  }

 private:
  size_t at(int64_t member, int64_t expert) const {
    return static_cast<size_t>(member * shape_.experts + expert);
  }
  int64_t cost_of(int64_t member) const { return cost_[static_cast<size_t>(member)]; }
  int64_t& work(int64_t member) { return work_[static_cast<size_t>(member)]; }
  bool holds(int64_t member, int64_t expert) const {
    return shape_.home(expert) == member || rows_[at(member, expert)] > 0;
  }

  static bool better(const GuestMove& a, const GuestMove& b) {
    if (b.expert < 0) return true;
    const auto key = [](const GuestMove& m) {
      return std::array<int64_t, 3>{m.peak, m.new_slot, m.new_weights};
    };
    return key(a) < key(b);
  }

  GuestMove best_move(int64_t from) {
    GuestMove best;
    for (int64_t e = 0; e < shape_.experts; ++e) {
      if (rows_[at(from, e)] == 0) continue;
      for (int64_t to = 0; to < shape_.members; ++to) {
        if (to == from || !shape_.may_serve(to, e)) continue;
        const GuestMove move = move_of(from, to, e);
        if (move.rows > 0 && better(move, best)) best = move;
      }
    }
    return best;
  }

  GuestMove move_of(int64_t from, int64_t to, int64_t expert) {
    GuestMove move{.expert = expert, .to = to, .new_slot = !holds(to, expert)};
    if (move.new_slot && free_[static_cast<size_t>(to)] == 0) return move;
    move.new_weights = move.new_slot && had_[at(to, expert)] == 0;
    const int64_t rows = std::min({rows_[at(from, expert)], (work(from) - level_) / cost_of(from),
                                   (level_ - work(to)) / cost_of(to)});
    if (rows <= 0 || (move.new_slot && rows * cost_of(from) < level_ / kLeastPart)) return move;
    move.rows = rows;
    move.peak = std::max(work(from) - rows * cost_of(from), work(to) + rows * cost_of(to));
    return move;
  }

  void apply(const GuestMove& move, int64_t from) {
    if (move.new_slot) --free_[static_cast<size_t>(move.to)];
    rows_[at(from, move.expert)] -= move.rows;
    rows_[at(move.to, move.expert)] += move.rows;
    work(from) -= move.rows * cost_of(from);
    work(move.to) += move.rows * cost_of(move.to);
    if (shape_.home(move.expert) != from && rows_[at(from, move.expert)] == 0)
      ++free_[static_cast<size_t>(from)];
  }

  // Guests that a member has already stay in their slots.
  GuestTable slots() const {
    GuestTable table = no_guests(shape_);
    for (int64_t m = 0; m < shape_.members; ++m) {
      const auto slot = [&](int64_t c) { return static_cast<size_t>(m * shape_.slots + c); };
      std::vector<int32_t> fresh;
      for (int64_t e = 0; e < shape_.experts; ++e)
        if (shape_.home(e) != m && rows_[at(m, e)] > 0 && had_[at(m, e)] == 0)
          fresh.push_back(static_cast<int32_t>(e));
      for (int64_t c = 0; c < shape_.slots; ++c) {
        const int32_t e = now_.expert[slot(c)];
        if (e >= 0 && rows_[at(m, e)] > 0) table.expert[slot(c)] = e;
      }
      for (int64_t c = 0; c < shape_.slots && !fresh.empty(); ++c) {
        if (table.expert[slot(c)] >= 0) continue;
        table.expert[slot(c)] = fresh.front();
        fresh.erase(fresh.begin());
      }
      MR_CHECK(fresh.empty(), "member %ld has too many guests", long(m));
    }
    return table;
  }

  const SplitShape& shape_;
  const std::span<const int64_t> cost_;
  const GuestTable& now_;
  int64_t level_ = 0;
  std::vector<int64_t> rows_;  // [P, E] of an expert at a member
  std::vector<int64_t> work_;  // [P]
  std::vector<int64_t> free_;  // [P] slots
  std::vector<uint8_t> had_;   // [P, E] is a guest now
};

}  // namespace

GuestTable plan_guests(const SplitShape& shape, std::span<const int64_t> rows,
                       std::span<const int64_t> cost, const GuestTable& now) {
  for (const int64_t c : cost) MR_CHECK(c > 0, "a row that costs %ld", long(c));
  MR_CHECK(is_valid(shape, now));
  GuestTable table = GuestPlanner(shape, rows, cost, now).plan();
  MR_CHECK(is_valid(shape, table));
  return table;
}

GuestTable shuffled_guests(const SplitShape& shape, uint64_t seed, uint64_t index) {
  GuestTable table = no_guests(shape);
  uint64_t draw = 0;
  for (size_t i = 0; i < table.expert.size(); ++i) {
    table.expert[i] = static_cast<int32_t>(
        random_below(static_cast<uint64_t>(shape.experts), seed, Stream::kChoice, index, draw++));
    if (!is_valid(shape, table)) table.expert[i] = -1;
  }
  return table;
}

}  // namespace moraine
