// Fails if a rank's rows or events are others at rank 0, or a row over the ranks leaves one out.
#include "train/rank_profiles.h"

#include <gtest/gtest.h>

#include "comm/all_ranks.h"
#include "comm/thread_ranks.h"

namespace moraine {
namespace {

RankProfile made_profile(int rank) {
  const double r = rank;
  RankProfile profile = {
      .host = rank % 2, .start = 0.1 + r, .traced = 3 + rank, .rows = {}, .events = {}};
  profile.rows.push_back({.name = "linear_forward",
                          .calls = 4,
                          .seconds = 1 + r,
                          .seconds_whole = 2 + r,
                          .flops = 1e12,
                          .integer_ops = 1e11,
                          .bytes = 1e9});
  profile.rows.push_back({.name = "step", .span = Span::kPhase, .calls = 1, .seconds = 0.5});
  if (rank == 2)
    profile.rows.push_back(
        {.name = "ranks: votes", .span = Span::kRanks, .calls = 2, .seconds = 3});
  for (int i = 0; i < 5 * rank; ++i)
    profile.events.push_back({.name = "linear_forward",
                              .begin = 1e6 + r + 1e-7 * i,
                              .seconds = 1e-7,
                              .flops = 3,
                              .integer_ops = 2,
                              .bytes = 7});
  return profile;
}

TEST(RankProfiles, TheFirstRankHasWhatEachMeasured) {
  std::vector<RankProfile> all;
  run_thread_ranks(3, [&](Transport& transport) {
    Communicator world(transport, all_ranks(transport), 0, "world", 60);
    std::vector<RankProfile> mine = gather_profiles(world, made_profile(transport.rank()));
    if (transport.rank() == 0)
      all = std::move(mine);
    else
      EXPECT_TRUE(mine.empty());
  });
  ASSERT_EQ(all.size(), 3u);
  for (int rank = 0; rank < 3; ++rank) {
    const RankProfile want = made_profile(rank), &got = all[static_cast<size_t>(rank)];
    EXPECT_EQ(got.host, want.host);
    EXPECT_EQ(got.start, want.start);
    EXPECT_EQ(got.traced, want.traced);
    ASSERT_EQ(got.rows.size(), want.rows.size());
    for (size_t i = 0; i < want.rows.size(); ++i) {
      EXPECT_STREQ(got.rows[i].name, want.rows[i].name);
      EXPECT_EQ(got.rows[i].span, want.rows[i].span);
      EXPECT_EQ(got.rows[i].calls, want.rows[i].calls);
      EXPECT_EQ(got.rows[i].seconds, want.rows[i].seconds);
      EXPECT_EQ(got.rows[i].seconds_whole, want.rows[i].seconds_whole);
      EXPECT_EQ(got.rows[i].flops, want.rows[i].flops);
      EXPECT_EQ(got.rows[i].integer_ops, want.rows[i].integer_ops);
      EXPECT_EQ(got.rows[i].bytes, want.rows[i].bytes);
    }
    ASSERT_EQ(got.events.size(), want.events.size());
    for (size_t i = 0; i < want.events.size(); ++i) {
      EXPECT_STREQ(got.events[i].name, want.events[i].name);
      EXPECT_EQ(got.events[i].begin, want.events[i].begin);
      EXPECT_EQ(got.events[i].seconds, want.events[i].seconds);
      EXPECT_EQ(got.events[i].flops, want.events[i].flops);
      EXPECT_EQ(got.events[i].integer_ops, want.events[i].integer_ops);
      EXPECT_EQ(got.events[i].bytes, want.events[i].bytes);
    }
  }
}

TEST(RankProfiles, ARowHasLeastMedianAndMostOfARank) {
  const std::vector<RankProfile> all = {made_profile(1), made_profile(2), made_profile(0)};
  EXPECT_EQ(rank_table(all, 10),
            "ms a step, over the ranks               least     median       most  of rank\n"
            "linear_forward                         100.00     200.00     300.00        1\n"
            "ranks: votes                             0.00       0.00     300.00        1\n"
            "(between the parts of a step)           50.00      50.00      50.00        0\n"
            "all                                    150.00     250.00     650.00        1\n");
}

}  // namespace
}  // namespace moraine
