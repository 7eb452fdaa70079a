// CommMeasure: fails if the fitted curve is not the line that the times lie on, if a table changes on its way from
// another process, or if samples of small messages or of few tokens are missing.
#include "bench/comm_measure.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/quantile.h"
#include "bench/signal_latency.h"
#include "bench/slot_latency.h"
#include "comm/thread_ranks.h"

namespace moraine {
namespace {

TEST(CommMeasure, TheFitIsTheLineThatTimesLieOn) {
  const double latency = 3e-6, rate = 2.5e9;
  std::vector<std::pair<double, double>> points;
  for (double bytes = 1024; bytes <= 16 << 20; bytes *= 4)
    points.emplace_back(bytes, latency + bytes / rate);
  const CommFit fit = fit_comm(points);
  // Sums of 8 terms of which the largest is 1e7 times the smallest: 1e-16 * 1e7 of rounding.
  EXPECT_NEAR(fit.latency_seconds / latency, 1, 1e-8);
  EXPECT_NEAR(fit.bytes_per_second / rate, 1, 1e-8);
}

// Errors are relative: a large message that is slow by a tenth must not hide what a small one
// takes.
TEST(CommMeasure, SmallMessagesCountAsMuchAsLargeOnes) {
  const double latency = 3e-6, rate = 2.5e9;
  std::vector<std::pair<double, double>> points;
  for (double bytes = 1024; bytes <= 16 << 20; bytes *= 4)
    points.emplace_back(bytes, latency + bytes / rate);
  points.back().second *= 1.1;
  EXPECT_NEAR(fit_comm(points).latency_seconds / latency, 1, 0.1);
}

TEST(CommMeasure, WhatCannotBeFittedIsZeroAndNothingIsNegative) {
  const std::vector<std::pair<double, double>> one = {{1024, 1e-6}};
  EXPECT_EQ(fit_comm(one).latency_seconds, 0);
  EXPECT_EQ(fit_comm(one).bytes_per_second, 0);
  const std::vector<std::pair<double, double>> falling = {{1024, 5e-6}, {4096, 1e-6}};
  EXPECT_GE(fit_comm(falling).latency_seconds, 0);
  EXPECT_EQ(fit_comm(falling).bytes_per_second, 0);
  const std::vector<std::pair<double, double>> steep = {{1024, 1e-7}, {4096, 1e-6}};
  EXPECT_EQ(fit_comm(steep).latency_seconds, 0);
}

TEST(CommMeasure, TablesPassAsTextToTheBit) {
  const std::vector<CommTimes> table = {{.operation = "all_gather",
                                         .bytes = int64_t{1} << 40,
                                         .delivered = 1.0 / 3,
                                         .seconds = {0.1, 5e-324, 1e300},
                                         .copy_seconds = {},
                                         .rival_seconds = {2.0 / 7},
                                         .tokens = 3},
                                        {.operation = "barrier"}};
  const std::vector<CommTimes> again = parse_comm_times(comm_times_text(table));
  ASSERT_EQ(again.size(), 2u);
  for (size_t i = 0; i < table.size(); ++i) {
    EXPECT_EQ(again[i].operation, table[i].operation);
    EXPECT_EQ(again[i].bytes, table[i].bytes);
    EXPECT_EQ(again[i].delivered, table[i].delivered);
    EXPECT_EQ(again[i].seconds, table[i].seconds);
    EXPECT_EQ(again[i].copy_seconds, table[i].copy_seconds);
    EXPECT_EQ(again[i].rival_seconds, table[i].rival_seconds);
    EXPECT_EQ(again[i].tokens, table[i].tokens);
  }
}

TEST(SignalLatency, EverySampleOfBothKindsIsThere) {
  std::vector<CommTimes> rows;
  run_thread_ranks(3, [&](Transport& t) {  // the third only waits
    std::vector<CommTimes> mine = measure_signals(t);
    if (t.rank() == 0) rows = std::move(mine);
  });
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows.back().bytes, 16 << 10);
  for (const CommTimes& row : rows) {
    EXPECT_EQ(row.seconds.size(), 1000u);
    EXPECT_EQ(row.rival_seconds.size(), 1000u);
    for (const double s : row.seconds) EXPECT_GT(s, 0);
  }
}

TEST(SlotLatency, EveryNumberOfTokensIsMeasuredBothWays) {
  std::vector<CommTimes> rows;
  run_thread_ranks(3, [&](Transport& t) {
    std::vector<CommTimes> mine = measure_slots(t);
    if (t.rank() == 0) rows = std::move(mine);
  });
  ASSERT_EQ(rows.size(), 16u);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].operation, i < 8 ? "dispatch_combine" : "share");
    EXPECT_EQ(rows[i].tokens, int64_t{1} << i % 8);
    EXPECT_EQ(rows[i].bytes, rows[i].tokens * 4096);
    EXPECT_EQ(rows[i].seconds.size(), 1000u);
    EXPECT_EQ(rows[i].rival_seconds.size(), 1000u);
  }
}

TEST(SignalLatency, QuantilesAreValuesThatWereMeasured) {
  EXPECT_EQ(quantile_of({}, 0.5), 0);
  EXPECT_EQ(quantile_of({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(quantile_of({3, 1, 2}, 0), 1);
  EXPECT_EQ(quantile_of({3, 1, 2}, 1), 3);
}

}  // namespace
}  // namespace moraine
