// Fails if shares of the table do not add up, a floor is not the larger of the two, or a span inside another is
// counted twice.
#include "train/time_split.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "train/test_time_rows.h"

namespace moraine {
namespace {

using namespace testing;

TEST(TimeSplit, FloorIsTheLargerOfFlopsAndBytes) {
  const Floor flops = floor_of(operation("a", 1, 2e9, 1e8), kLimits);
  EXPECT_EQ(flops.bound, Bound::kFlops);
  EXPECT_DOUBLE_EQ(flops.seconds, 2);
  const Floor bytes = floor_of(operation("b", 1, 2e9, 3e8), kLimits);
  EXPECT_EQ(bytes.bound, Bound::kBytes);
  EXPECT_DOUBLE_EQ(bytes.seconds, 3);
  EXPECT_EQ(floor_of(operation("c", 1, 0, 0), kLimits).bound, Bound::kNothing);
  // Waiting has no floor, though its bytes are known; nor has anything without limits.
  Profile::Row wait = other(Span::kRanks, "ranks: x", 1, 1);
  wait.bytes = 1e9;
  EXPECT_EQ(floor_of(wait, kLimits).bound, Bound::kNothing);
  EXPECT_EQ(floor_of(operation("a", 1, 2e9, 1e8), {}).bound, Bound::kNothing);
}

TEST(TimeSplit, IntegersHaveAPeakOfTheirOwn) {
  Profile profile;
  { const OpTimer plain(&profile, "one", 1e9, 1); }
  { const OpTimer integers(&profile, "one", 2e9, 1, true); }
  const std::vector<Profile::Row> rows = profile.rows();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_DOUBLE_EQ(rows[0].flops, 3e9);
  EXPECT_DOUBLE_EQ(rows[0].integer_ops, 2e9);
  RankLimits limits = kLimits;
  limits.integer_ops_s = 4e9;
  EXPECT_DOUBLE_EQ(arithmetic_seconds(rows, limits), 1.5);
  EXPECT_DOUBLE_EQ(floor_of(rows[0], limits).seconds, 1.5);
  EXPECT_DOUBLE_EQ(arithmetic_seconds(rows, kLimits), 3);  // no instruction for them
  std::vector<Profile::Row> twice = rows;
  merge_rows(twice, rows);
  EXPECT_DOUBLE_EQ(arithmetic_seconds(twice, limits), 3);
}

// On a device: what it is asked for is done before the clock is read, once for each operation and for nothing else.
TEST(TimeSplit, AnOperationEndsWhenItsWorkIsDone) {
  Profile profile;
  int waits = 0;
  profile.settle([&] {
    ++waits;
    throw 1;  // is met again by whoever waits next
  });
  {
    const OpTimer phase(&profile, Span::kPhase, "phase");
    { const OpTimer one(&profile, "one", 1, 1); }
    { const OpTimer two(&profile, "two", 1, 1); }
    { const OpTimer ranks(&profile, Span::kRanks, "ranks: x"); }
  }
  EXPECT_EQ(waits, 2);
  EXPECT_EQ(profile.rows().size(), 4u);
  profile.settle(nullptr);
  { const OpTimer one(&profile, "one", 1, 1); }
  EXPECT_EQ(waits, 2);
}

TEST(TimeSplit, LimitsAreThoseOfARank) {
  Machine machine;
  machine.threads = 8;
  machine.f32_gflops = 80, machine.bf16_gflops = 160, machine.int8_gops = 320;
  machine.read_gb_s = 20, machine.copy_gb_s = 15;
  EXPECT_DOUBLE_EQ(rank_limits(machine, 8, false).flops_s, 80e9);
  EXPECT_DOUBLE_EQ(rank_limits(machine, 2, true).flops_s, 40e9);
  EXPECT_DOUBLE_EQ(rank_limits(machine, 16, true).flops_s, 160e9);
  EXPECT_DOUBLE_EQ(rank_limits(machine, 2, true).bytes_s, 20e9);
  EXPECT_DOUBLE_EQ(rank_limits(machine, 2, true).integer_ops_s, 80e9);
}

TEST(TimeSplit, EverySecondIsInOnePart) {
  const std::vector<Profile::Row> rows = {
      operation("products", 0.5, 4e8, 1e6), operation("copies", 0.2, 0, 1e7),
      operation("unknown", 0.05, 0, 0), other(Span::kRanks, "ranks: counts", 0.1, 0.1),
      other(Span::kPhase, "step", 0.15, 1.0)};
  const TimeSplit split = split_time(rows, kLimits);
  EXPECT_DOUBLE_EQ(split.seconds, 1.0);
  EXPECT_DOUBLE_EQ(
      split.flops_bound + split.bytes_bound + split.no_floor + split.ranks + split.phases,
      split.seconds);
  EXPECT_DOUBLE_EQ(split.flops_bound, 0.5);
  EXPECT_DOUBLE_EQ(split.flops_bound_floor, 0.4);
  EXPECT_DOUBLE_EQ(split.bytes_bound_floor, 0.1);
}

// What stands in the column time% of a line.
double share(const std::string& line) {
  const size_t percent = line.find('%');
  const size_t begin = line.find_last_of(' ', percent);
  return std::strtod(line.c_str() + begin, nullptr);
}

TEST(TimeSplit, SharesOfTheTableAddUp) {
  const std::vector<Profile::Row> rows = {
      operation("products", 0.5, 4e8, 1e6), operation("copies", 0.25, 0, 1e7),
      other(Span::kRanks, "ranks: counts", 0.125, 0.125), other(Span::kPhase, "step", 0.125, 1)};
  const std::string text = time_table(rows, kLimits);
  double sum = 0;
  int lines = 0;
  for (size_t at = text.find('\n') + 1; text.compare(at, 4, "all ") != 0;
       at = text.find('\n', at) + 1, ++lines)
    sum += share(text.substr(at, text.find('\n', at) - at));
  EXPECT_EQ(lines, 4);
  EXPECT_NEAR(sum, 100, 0.05 * lines) << text;
  EXPECT_NE(text.find("100.0%"), std::string::npos) << text;
  // 0.5 s over a floor of 0.4 s; 0.25 s over one of 0.1 s.
  EXPECT_NE(text.find("400.00 flops     1.2"), std::string::npos) << text;
  EXPECT_NE(text.find("100.00 bytes     2.5"), std::string::npos) << text;
}

TEST(TimeSplit, SpansInsideASpanAreNotCountedTwice) {
  Profile profile;
  std::vector<Profile::Event> events;
  events.reserve(4);
  profile.record(&events);
  volatile double work = 1;
  const auto compute = [&] {
    for (int i = 0; i < 1000; ++i) work = std::sqrt(work + i);
  };
  {
    const OpTimer step(&profile, Span::kPhase, "step");
    {
      const OpTimer forward(&profile, Span::kPhase, "forward");
      for (int i = 0; i < 3; ++i) {
        const OpTimer product(&profile, "product", 10, 1);
        compute();
      }
      compute();
    }
    compute();
  }
  const std::vector<Profile::Row> rows = profile.rows();
  double sum = 0;
  for (const Profile::Row& row : rows) {
    EXPECT_GE(row.seconds, 0) << row.name;
    sum += row.seconds;
  }
  EXPECT_NEAR(sum, row_of(rows, "step").seconds_whole, 1e-9);
  EXPECT_EQ(row_of(rows, "product").calls, 3);
  EXPECT_EQ(profile.flops(), 30);
  // The step's own event came when there was no room left.
  ASSERT_EQ(events.size(), 4u);
  EXPECT_STREQ(events.back().name, "forward");
}

TEST(TimeSplit, RowsOfTheSameNameAreAddedUp) {
  std::vector<Profile::Row> all = {operation("a", 1, 2, 3)};
  const std::vector<Profile::Row> more = {operation("b", 1, 1, 1), operation("a", 10, 20, 30)};
  merge_rows(all, more);
  ASSERT_EQ(all.size(), 2u);
  const Profile::Row a = row_of(all, "a");
  EXPECT_EQ(a.calls, 2);
  EXPECT_EQ(a.seconds, 11);
  EXPECT_EQ(a.seconds_whole, 11);
  EXPECT_EQ(a.flops, 22);
  EXPECT_EQ(a.bytes, 33);
  EXPECT_EQ(row_of(all, "c").calls, 0);
}

}  // namespace
}  // namespace moraine
