// RowSplit: blocks of rows, one after another to who ends first.
#include "parallel/row_split.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/random.h"

namespace moraine {
namespace {

constexpr int64_t kMostBlocks = 64;  // of a member's mean rows
constexpr uint64_t kRowSeed = 2;
constexpr int64_t kNextRows = 4;  // a group that has rows takes so many more
constexpr int kSweeps = 2;        // the second sees what the experts behind it took

// Rows of a group's first block, and of those after it.
struct BlockRows {
  int64_t first, next;
};

BlockRows block_rows(const SplitShape& shape, std::span<const int64_t> rows) {
  const int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  const int64_t least = all / (shape.members * kMostBlocks);
  return {.first = std::max(kSplitRows, least), .next = std::max(kNextRows, least)};
}

// What stays at home, into an empty split.
void begin_split(const SplitShape& shape, const SplitRoutes& routes, std::span<const int64_t> rows,
                 RowSplit* split) {
  MR_CHECK(static_cast<int64_t>(rows.size()) == shape.experts, "%zu experts", rows.size());
  split->rows.assign(static_cast<size_t>(shape.groups()), 0);
  split->work.assign(static_cast<size_t>(shape.members), 0);
  for (size_t e = 0; e < rows.size(); ++e)
    if (routes.shared_of[e] < 0) split->rows[static_cast<size_t>(routes.home_group[e])] = rows[e];
}

void add_work(const SplitShape& shape, std::span<const int64_t> cost, RowSplit* split) {
  for (int64_t m = 0; m < shape.members; ++m) {
    for (int64_t g = shape.group_begin(m); g < shape.group_begin(m + 1); ++g) {
      split->work[static_cast<size_t>(m)] +=
          work_of_rows(split->rows[static_cast<size_t>(g)]) * cost[static_cast<size_t>(m)];
    }
  }
}

class Blocks {
 public:
  Blocks(BlockRows rows, std::span<const int64_t> cost, RowSplit* split)
      : rows_(rows), cost_(cost), split_(*split) {}

  void take_back(const SplitRoutes::Shared& shared) {
    for (const SplitRoutes::Holder& h : shared.holders) {
      work_of(h) -= work_of_rows(rows_of(h)) * cost_of(h);
      rows_of(h) = 0;
    }
  }

  void give(const SplitRoutes::Shared& shared, int64_t rows) {
    int64_t taken = 0;
    for (int64_t left = rows; left > 0; left -= taken) {
      const Holder* first = nullptr;
      for (const Holder& h : shared.holders)
        if (first == nullptr || after(h, left) < after(*first, left)) first = &h;
      taken = block_of(*first, left);
      work_of(*first) = after(*first, left);
      rows_of(*first) += taken;
    }
  }

 private:
  using Holder = SplitRoutes::Holder;
  int64_t cost_of(const Holder& h) const { return cost_[static_cast<size_t>(h.member)]; }
  int64_t& work_of(const Holder& h) { return split_.work[static_cast<size_t>(h.member)]; }
  int64_t& rows_of(const Holder& h) { return split_.rows[static_cast<size_t>(h.group)]; }
  int64_t block_of(const Holder& h, int64_t left) {
    return std::min(rows_of(h) == 0 ? rows_.first : rows_.next, left);
  }
  // Work when it has taken a block, too.
  int64_t after(const Holder& h, int64_t left) {
    const int64_t had = rows_of(h), has = had + block_of(h, left);
    return work_of(h) + (work_of_rows(has) - work_of_rows(had)) * cost_of(h);
  }

  const BlockRows rows_;
  std::span<const int64_t> cost_;
  RowSplit& split_;
};

}  // namespace

bool SplitShape::may_serve(int64_t member, int64_t expert) const {
  if (hosts.empty()) return true;
  return hosts[static_cast<size_t>(member)] == hosts[static_cast<size_t>(home(expert))];
}

GuestTable no_guests(const SplitShape& shape) {
  return {std::vector<int32_t>(static_cast<size_t>(shape.members * shape.slots), -1)};
}

int64_t count_guests(const GuestTable& table) {
  return std::count_if(table.expert.begin(), table.expert.end(), [](int32_t e) { return e >= 0; });
}

int64_t count_new_guests(const GuestTable& now, const GuestTable& next) {
  int64_t count = 0;
  for (size_t i = 0; i < next.expert.size(); ++i)
    count += next.expert[i] >= 0 && next.expert[i] != now.expert[i] ? 1 : 0;
  return count;
}

bool is_valid(const SplitShape& shape, const GuestTable& table) {
  if (static_cast<int64_t>(table.expert.size()) != shape.members * shape.slots) return false;
  for (size_t i = 0; i < table.expert.size(); ++i) {
    const int64_t m = static_cast<int64_t>(i) / shape.slots, e = table.expert[i];
    if (e == -1) continue;
    if (e < 0 || e >= shape.experts || shape.home(e) == m || !shape.may_serve(m, e)) return false;
    const auto begin = table.expert.begin() + m * shape.slots;
    if (std::count(begin, begin + shape.slots, e) > 1) return false;
  }
  return true;
}

SplitRoutes split_routes(const SplitShape& shape, const GuestTable& table) {
  MR_CHECK(is_valid(shape, table));
  SplitRoutes r;
  for (int64_t e = 0; e < shape.experts; ++e) {
    const int64_t m = shape.home(e);
    r.home_group.push_back(static_cast<int32_t>(shape.group_begin(m) + e - shape.begin(m)));
    std::vector<SplitRoutes::Holder> holders = {{static_cast<int32_t>(m), r.home_group.back()}};
    for (size_t i = 0; i < table.expert.size(); ++i) {
      if (table.expert[i] != e) continue;
      const int64_t at = static_cast<int64_t>(i) / shape.slots,
                    slot = static_cast<int64_t>(i) % shape.slots;
      holders.push_back({static_cast<int32_t>(at),
                         static_cast<int32_t>(shape.group_begin(at) + shape.held(at) + slot)});
    }
    const bool shared = holders.size() > 1;
    r.shared_of.push_back(shared ? static_cast<int32_t>(r.shared.size()) : -1);
    if (shared) r.shared.push_back({.expert = e, .holders = std::move(holders)});
  }
  return r;
}

void split_rows(const SplitShape& shape, const SplitRoutes& routes, std::span<const int64_t> rows,
                std::span<const int64_t> cost, RowSplit* split) {
  begin_split(shape, routes, rows, split);
  add_work(shape, cost, split);
  if (routes.shared.empty()) return;
  std::vector<const SplitRoutes::Shared*> order;
  for (const SplitRoutes::Shared& s : routes.shared) order.push_back(&s);
  const auto rows_of = [&](const SplitRoutes::Shared* s) {
    return rows[static_cast<size_t>(s->expert)];
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const auto* a, const auto* b) { return rows_of(a) > rows_of(b); });
  Blocks blocks(block_rows(shape, rows), cost, split);
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (const SplitRoutes::Shared* s : order) {
      blocks.take_back(*s);
      blocks.give(*s, rows_of(s));
    }
  }
}

void shuffle_rows(const SplitShape& shape, const SplitRoutes& routes, std::span<const int64_t> rows,
                  uint64_t index, RowSplit* split) {
  begin_split(shape, routes, rows, split);
  uint64_t draw = 0;
  for (const SplitRoutes::Shared& s : routes.shared) {
    for (int64_t left = rows[static_cast<size_t>(s.expert)]; left > 0;) {
      const auto below = [&](int64_t n) {
        return static_cast<int64_t>(
            random_below(static_cast<uint64_t>(n), kRowSeed, Stream::kChoice, index, draw++));
      };
      const int64_t taken = 1 + below(left);
      const auto to = static_cast<size_t>(below(static_cast<int64_t>(s.holders.size())));
      split->rows[static_cast<size_t>(s.holders[to].group)] += taken;
      left -= taken;
    }
  }
  add_work(shape, std::vector<int64_t>(static_cast<size_t>(shape.members), 1), split);
}

void rows_to_groups(const SplitShape& shape, const SplitRoutes& routes, const RowSplit& split,
                    std::span<const int32_t> expert, std::span<int32_t> group) {
  struct Cursor {
    size_t holder = 0;
    int64_t left = 0;  // rows of this holder
  };
  std::vector<Cursor> cursors;
  const auto left_of = [&](const SplitRoutes::Shared& s, size_t holder) {
    return split.rows[static_cast<size_t>(s.holders[holder].group)];
  };
  for (const SplitRoutes::Shared& s : routes.shared) cursors.push_back({0, left_of(s, 0)});
  for (size_t i = 0; i < expert.size(); ++i) {
    const int32_t e = expert[i];
    if (e == shape.experts) {
      group[i] = static_cast<int32_t>(shape.groups());
      continue;
    }
    const int32_t of = routes.shared_of[static_cast<size_t>(e)];
    if (of < 0) {
      group[i] = routes.home_group[static_cast<size_t>(e)];
      continue;
    }
    const SplitRoutes::Shared& s = routes.shared[static_cast<size_t>(of)];
    Cursor& c = cursors[static_cast<size_t>(of)];
    while (c.left == 0) {
      MR_CHECK(c.holder + 1 < s.holders.size(), "expert %d has more rows than were split", e);
      c.left = left_of(s, ++c.holder);
    }
    --c.left;
    group[i] = s.holders[c.holder].group;
  }
}

}  // namespace moraine
