// RowSplit and PlanGuests: against all tables there are (small cases) and what no split can be below (all).
//
// Fails if a row is computed by nobody, twice, or by a member without its expert; if a split is further from the
// best one than its blocks are large, or counts weights that many rows hide; if few rows of an expert are torn apart;
// or if a plan has a guest at home, too many, on another host, or one that gains nothing, is worse than the homes, or
// leaves busy members where slots allow to share.
#include "parallel/row_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "parallel/plan_guests.h"

namespace moraine {
namespace {

struct Draws {
  uint64_t seed, next = 0;
  int64_t below(int64_t n) {
    return static_cast<int64_t>(
        random_below(static_cast<uint64_t>(n), seed, Stream::kTest, 20, next++));
  }
};

SplitShape draw_shape(Draws& draws) {
  SplitShape shape;
  shape.members = 1 + draws.below(5);
  shape.experts = shape.members + draws.below(9);
  shape.slots = draws.below(4);
  for (int64_t m = 0; m < shape.members && shape.slots == 3; ++m)
    shape.hosts.push_back(static_cast<int>(m / 2));
  return shape;
}

// Some without rows, some with many.
std::vector<int64_t> draw_rows(Draws& draws, int64_t experts) {
  std::vector<int64_t> rows;
  for (int64_t e = 0; e < experts; ++e) rows.push_back(draws.below(int64_t{1} << draws.below(13)));
  return rows;
}

int64_t sum_of(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

int64_t most_of(const std::vector<int64_t>& values) {
  return *std::max_element(values.begin(), values.end());
}

// The least busiest work that rows of any size could have (Hall): experts that only some members have are theirs.
double least_work(const SplitShape& shape, const GuestTable& table,
                  const std::vector<int64_t>& rows, const std::vector<int64_t>& cost) {
  const SplitRoutes routes = split_routes(shape, table);
  double least = 0;
  for (int64_t some = 1; some < int64_t{1} << shape.members; ++some) {
    double held = 0, rate = 0;
    for (int64_t e = 0; e < shape.experts; ++e) {
      int64_t holders = int64_t{1} << shape.home(e);
      if (routes.shared_of[static_cast<size_t>(e)] >= 0)
        for (const auto& h :
             routes.shared[static_cast<size_t>(routes.shared_of[static_cast<size_t>(e)])].holders)
          holders |= int64_t{1} << h.member;
      if ((holders & ~some) == 0) held += static_cast<double>(rows[static_cast<size_t>(e)]);
    }
    for (int64_t m = 0; m < shape.members; ++m)
      if ((some >> m & 1) != 0) rate += 1 / static_cast<double>(cost[static_cast<size_t>(m)]);
    least = std::max(least, held / rate);
  }
  return least;
}

// By group, who may have it.
void expect_complete(const SplitShape& shape, const GuestTable& table,
                     const std::vector<int64_t>& rows, const RowSplit& split) {
  std::vector<int64_t> found(rows.size(), 0);
  for (int64_t m = 0; m < shape.members; ++m) {
    for (int64_t g = shape.group_begin(m); g < shape.group_begin(m + 1); ++g) {
      const int64_t at = g - shape.group_begin(m), slot = at - shape.held(m);
      const int64_t e = slot < 0 ? shape.begin(m) + at
                                 : table.expert[static_cast<size_t>(m * shape.slots + slot)];
      const int64_t here = split.rows[static_cast<size_t>(g)];
      ASSERT_GE(here, 0);
      if (e >= 0) {
        found[static_cast<size_t>(e)] += here;
      } else {
        ASSERT_EQ(here, 0) << "rows of an empty slot";
      }
    }
  }
  EXPECT_EQ(found, rows);
}

TEST(RowSplit, EveryRowIsComputedOnceAndTheBusiestIsNearTheLeastThereCanBe) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Draws draws{seed};
    const SplitShape shape = draw_shape(draws);
    const GuestTable table = shuffled_guests(shape, seed, 5);
    const std::vector<int64_t> rows = draw_rows(draws, shape.experts);
    std::vector<int64_t> cost;
    for (int64_t m = 0; m < shape.members; ++m) cost.push_back(2 + draws.below(3));
    const SplitRoutes routes = split_routes(shape, table);
    RowSplit split;
    split_rows(shape, routes, rows, cost, &split);
    SCOPED_TRACE(seed);
    expect_complete(shape, table, rows, split);
    // Blocks end where they do: one of each expert at each holder, and what opening costs.
    const int64_t block = std::max(kSplitRows, sum_of(rows) / (64 * shape.members));
    const double most =
        static_cast<double>((block + kOpenRows) * (shape.experts + shape.slots) * most_of(cost));
    EXPECT_LE(static_cast<double>(most_of(split.work)),
              1.05 * least_work(shape, table, rows, cost) + most);
    shuffle_rows(shape, routes, rows, seed, &split);
    expect_complete(shape, table, rows, split);
  }
}

TEST(RowSplit, RowsGoToTheirGroupsInOrder) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Draws draws{seed};
    const SplitShape shape = draw_shape(draws);
    const SplitRoutes routes = split_routes(shape, shuffled_guests(shape, seed, 6));
    std::vector<int32_t> expert;
    std::vector<int64_t> rows(static_cast<size_t>(shape.experts), 0);
    for (int64_t i = draws.below(300); i > 0; --i) {
      expert.push_back(static_cast<int32_t>(draws.below(shape.experts + 1)));
      if (expert.back() < shape.experts) ++rows[static_cast<size_t>(expert.back())];
    }
    RowSplit split;
    shuffle_rows(shape, routes, rows, seed, &split);
    std::vector<int32_t> group(expert.size());
    rows_to_groups(shape, routes, split, expert, group);
    std::vector<int64_t> found(static_cast<size_t>(shape.groups()), 0);
    for (size_t i = 0; i < group.size(); ++i) {
      EXPECT_EQ(group[i] == shape.groups(), expert[i] == shape.experts);
      if (group[i] < shape.groups()) ++found[static_cast<size_t>(group[i])];
    }
    EXPECT_EQ(found, split.rows) << seed;
  }
}

TEST(RowSplit, FewRowsStayTogetherAndManyAreShared) {
  const SplitShape shape{.experts = 4, .members = 2, .slots = 1};
  const SplitRoutes routes = split_routes(shape, {{-1, 0}});  // member 1 has expert 0 too
  const std::vector<int64_t> cost = {1, 1};
  RowSplit split;
  // Groups: 0, 1, (slot), 2, 3, (slot).
  split_rows(shape, routes, std::vector<int64_t>{3, 1, 0, 0}, cost, &split);
  EXPECT_EQ(split.rows, (std::vector<int64_t>{0, 1, 0, 0, 0, 3}));
  split_rows(shape, routes, std::vector<int64_t>{3, 0, 1, 1}, cost, &split);
  EXPECT_EQ(split.rows, (std::vector<int64_t>{3, 0, 0, 1, 1, 0}));
  split_rows(shape, routes, std::vector<int64_t>{384, 0, 0, 0}, cost, &split);
  EXPECT_EQ(split.rows, (std::vector<int64_t>{192, 0, 0, 0, 0, 192}));
  // A member at half the speed gets half of what the other has.
  split_rows(shape, routes, std::vector<int64_t>{960, 0, 0, 0}, std::vector<int64_t>{1, 2}, &split);
  EXPECT_NEAR(static_cast<double>(split.rows[0]), 640, 16);
  // What is shared levels what is not, but for 4 rows: reading weights is no work beside so many.
  split_rows(shape, routes, std::vector<int64_t>{60, 7, 30, 4}, cost, &split);
  EXPECT_EQ(split.work[0] + split.work[1], 60 + 8 + 30 + 8);
  EXPECT_LE(std::abs(split.work[0] - split.work[1]), 4);
}

// The best of all tables of a small shape.
double best_of_all(const SplitShape& shape, const std::vector<int64_t>& rows,
                   const std::vector<int64_t>& cost) {
  GuestTable table = no_guests(shape);
  double best = least_work(shape, table, rows, cost);
  for (;;) {
    size_t i = 0;
    while (i < table.expert.size() && ++table.expert[i] == shape.experts) table.expert[i++] = -1;
    if (i == table.expert.size()) return best;
    if (is_valid(shape, table)) best = std::min(best, least_work(shape, table, rows, cost));
  }
}

TEST(PlanGuests, IsTheBestOfAllOrNearItInSmallCases) {
  int64_t cases = 0, best = 0;
  double worst = 1;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Draws draws{seed};
    SplitShape shape{.experts = 3 + draws.below(3), .members = 2 + draws.below(2), .slots = 1};
    if (shape.members == 2) shape.slots += draws.below(2);
    std::vector<int64_t> rows = draw_rows(draws, shape.experts);
    for (int64_t& r : rows) r *= 256;  // averages have fractions
    std::vector<int64_t> cost(static_cast<size_t>(shape.members), 64);
    if (draws.below(3) == 0) cost[1] = 128;
    const double least = best_of_all(shape, rows, cost);
    if (least == 0) continue;
    const GuestTable plan = plan_guests(shape, rows, cost, shuffled_guests(shape, seed, 7));
    const double times = least_work(shape, plan, rows, cost) / least;
    EXPECT_LE(least_work(shape, plan, rows, cost), least_work(shape, no_guests(shape), rows, cost));
    ++cases, best += times < 1.02 ? 1 : 0, worst = std::max(worst, times);
  }
  EXPECT_GE(best, cases * 8 / 10);
  EXPECT_LT(worst, 1.5);
  std::printf("%ld of %ld cases within 2 %% of the best, worst %.3f\n", long(best), long(cases),
              worst);
}

TEST(PlanGuests, GuestsThatStayKeepTheirSlotsAndAPlanIsItsOwnFixedPoint) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Draws draws{seed};
    const SplitShape shape = draw_shape(draws);
    const std::vector<int64_t> rows = draw_rows(draws, shape.experts),
                               cost(static_cast<size_t>(shape.members), 64);
    const GuestTable now = shuffled_guests(shape, seed, 8);
    const GuestTable next = plan_guests(shape, rows, cost, now);
    for (size_t i = 0; i < next.expert.size(); ++i) {
      const int64_t m = static_cast<int64_t>(i) / shape.slots;
      const auto begin = now.expert.begin() + m * shape.slots, end = begin + shape.slots;
      if (next.expert[i] < 0 || std::find(begin, end, next.expert[i]) == end) continue;
      EXPECT_EQ(next.expert[i], now.expert[i]) << seed << ": a guest that stays moved";
    }
    EXPECT_EQ(plan_guests(shape, rows, cost, next), next) << seed;
  }
}

TEST(PlanGuests, EvenLoadsAndIdleExpertsGetNone) {
  const SplitShape shape{.experts = 8, .members = 4, .slots = 2};
  const std::vector<int64_t> cost(4, 64);
  EXPECT_EQ(count_guests(plan_guests(shape, std::vector<int64_t>(8, 100), cost, no_guests(shape))),
            0);
  EXPECT_EQ(count_guests(plan_guests(shape, std::vector<int64_t>(8, 0), cost, no_guests(shape))),
            0);
}

// The table of docs/expert_placement.md.
TEST(PlanGuests, LargeGroupsAreBalanced) {
  std::printf("shares fall as, busiest over mean at home, 1 slot, 2 slots\n");
  for (const double s : {0.5, 0.8, 1.2}) {
    double mean[3] = {0, 0, 0};
    constexpr int kOrders = 5;
    for (uint64_t seed = 0; seed < kOrders; ++seed) {
      Draws draws{seed};
      std::vector<int64_t> rows;
      for (int e = 1; e <= 256; ++e) rows.push_back(std::llround(4e6 * std::pow(e, -s)));
      for (size_t e = rows.size(); e > 1; --e)
        std::swap(rows[e - 1], rows[static_cast<size_t>(draws.below(static_cast<int64_t>(e)))]);
      const std::vector<int64_t> cost(32, 64);
      for (int64_t slots = 0; slots < 3; ++slots) {
        const SplitShape shape{.experts = 256, .members = 32, .slots = slots};
        const GuestTable table = plan_guests(shape, rows, cost, no_guests(shape));
        RowSplit split;
        split_rows(shape, split_routes(shape, table), rows, cost, &split);
        mean[slots] += static_cast<double>(most_of(split.work)) * 32 /
                       static_cast<double>(sum_of(split.work)) / kOrders;
      }
    }
    std::printf("%.1f %.3f %.3f %.3f\n", s, mean[0], mean[1], mean[2]);
    EXPECT_GT(mean[0], 1.5);
    EXPECT_LT(mean[1], 1.08);
    EXPECT_LT(mean[2], 1.05);
  }
}

}  // namespace
}  // namespace moraine
