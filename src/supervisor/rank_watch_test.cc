// Who hangs and who is slow, from heartbeats alone.
#include "supervisor/rank_watch.h"

#include <gtest/gtest.h>

namespace moraine {
namespace {

class RankWatchTest : public ::testing::Test {
 protected:
  explicit RankWatchTest(int64_t ranks = 4) : watch_(options_, RankWatch::initial(ranks)) {
    for (int r = 0; r < ranks; ++r) watch_.begin(0, r);
  }
  void beat(double now, int rank, BeatSnapshot b) { watch_.observe(now, rank, b); }
  static BeatSnapshot computing(int64_t beats, int64_t step = 0, double seconds = 0) {
    return {.activity = Activity::kComputing,
            .beats = beats,
            .step = step,
            .step_seconds = seconds,
            .compute_seconds = seconds};
  }
  static BeatSnapshot waiting(int32_t other) {
    return {.activity = Activity::kWaiting, .waits_for = other, .beats = 1};
  }
  SuperviseOptions options_;
  RankWatch watch_;
};

TEST_F(RankWatchTest, WhoWaitsForOneThatMovesDoesNotHang) {
  for (int r = 0; r < 3; ++r) beat(0, r, waiting(3));
  for (int t = 0; t < 200; ++t) beat(t, 3, computing(t));
  EXPECT_EQ(watch_.find_hang(200).rank, -1);
  EXPECT_EQ(watch_.find_hang(231).rank, 3);  // 30 s behind its last beat
}

TEST_F(RankWatchTest, TheEndOfAChainIsTheCulprit) {
  beat(0, 0, waiting(1));
  beat(0, 1, waiting(2));
  beat(0, 2, computing(1));
  beat(0, 3, waiting(0));
  EXPECT_EQ(watch_.find_hang(29).rank, -1);
  EXPECT_EQ(watch_.find_hang(31).rank, 2);
}

TEST_F(RankWatchTest, OfARingItIsTheOneThatMostWaitFor) {
  beat(0, 0, waiting(1));
  beat(0, 1, waiting(2));
  beat(0, 2, waiting(1));
  beat(0, 3, waiting(1));
  EXPECT_EQ(watch_.find_hang(31).rank, 1);
}

TEST_F(RankWatchTest, ASlowStepIsNoHang) {
  for (int step = 1; step <= 40; ++step) beat(20.0 * step, 0, computing(step, step, 20));
  EXPECT_EQ(watch_.median_step(), 20);
  for (int r = 1; r < 4; ++r) beat(800, r, computing(1));
  EXPECT_EQ(watch_.find_hang(800 + 199).rank, -1);  // 10 steps
  EXPECT_EQ(watch_.find_hang(800 + 201).rank, 0);
}

TEST_F(RankWatchTest, OutsideOfStepsThereIsMoreTime) {
  for (int r = 0; r < 4; ++r) beat(0, r, {.activity = Activity::kLoading, .beats = 1});
  EXPECT_EQ(watch_.find_hang(299).rank, -1);
  EXPECT_EQ(watch_.find_hang(301).rank, 0);
}

TEST_F(RankWatchTest, AStoppedProcessIsTold) {
  BeatSnapshot b = computing(1);
  b.stopped = true;
  beat(0, 2, b);
  for (const int r : {0, 1, 3}) beat(0, r, waiting(2));
  const RankHang hang = watch_.find_hang(31);
  EXPECT_EQ(hang.rank, 2);
  EXPECT_TRUE(hang.stopped);
  EXPECT_EQ(hang.since, 0);
}

// Two that wait for each other over links that are cut, one that waits for them by its stream, one that waits for that.
TEST_F(RankWatchTest, AnOperationThatIsHeldIsNoHang) {
  BeatSnapshot held = waiting(1);
  held.held = 1;
  beat(0, 0, held);
  held.waits_for = 0;
  beat(0, 1, held);
  beat(0, 2, waiting(-1));
  beat(0, 3, waiting(2));
  EXPECT_EQ(watch_.find_hang(1000).rank, -1);
  held.held = 0;
  beat(1000, 0, held);
  beat(1000, 1, held);
  EXPECT_GE(watch_.find_hang(1031).rank, 0);
}

TEST_F(RankWatchTest, OfThoseWhoHoldNobodyBackWhoHangsIsFound) {
  BeatSnapshot held = waiting(1);
  held.held = 1;
  beat(0, 0, held);
  beat(0, 1, computing(1));
  beat(0, 2, waiting(-1));
  EXPECT_EQ(watch_.find_hang(31).rank, 1);
  BeatSnapshot stopped = held;  // it says what was so when it was stopped
  stopped.stopped = true;
  beat(31, 1, computing(2));
  beat(31, 0, stopped);
  EXPECT_EQ(watch_.find_hang(62).rank, 0);
}

// The others may look guilty: one computes, or says not for whom it waits. And it may be at anything.
TEST_F(RankWatchTest, AStoppedProcessIsTheFirstSuspect) {
  beat(0, 0, computing(1));
  beat(0, 1, waiting(-1));
  beat(0, 2, computing(1));
  beat(0, 3, {.activity = Activity::kStoring, .beats = 1, .stopped = true});
  EXPECT_EQ(watch_.find_hang(31).rank, 3);
  beat(40, 3, {.activity = Activity::kStoring, .beats = 2});
  EXPECT_EQ(watch_.find_hang(41).rank, 0) << "who does not wait comes before who does not say";
}

// Stopped and let go on, again and again, while it starts: each look may find it stopped.
TEST_F(RankWatchTest, ASlowProcessIsNotAStoppedOne) {
  BeatSnapshot b = {.activity = Activity::kStarting, .beats = 1, .stopped = true};
  for (int t = 0; t <= 100; ++t) {
    ++b.stops;
    for (int r = 0; r < 4; ++r) beat(t, r, b);
    ASSERT_EQ(watch_.find_hang(t).rank, -1) << t;
  }
  EXPECT_EQ(watch_.find_hang(110).rank, -1);
  EXPECT_EQ(watch_.find_hang(116).rank, 0) << "for 15 s now, and without a beat for more than 30";
  b.stopped = false;
  b.stops = 0;
  beat(117, 0, b);
  EXPECT_EQ(watch_.find_hang(117).rank, 1);
}

// Whom it waits for is the one that hangs.
TEST_F(RankWatchTest, ASlowProcessMayWait) {
  BeatSnapshot b = waiting(2);
  b.stopped = true;
  for (int t = 0; t <= 31; ++t) {
    ++b.stops;
    beat(t, 0, b);
    if (t == 0) beat(t, 2, computing(1));
  }
  EXPECT_EQ(watch_.find_hang(31).rank, 2);
}

// It was stopped while it waited for rank 1, which was lost; the successor of that meets, which may take long.
TEST_F(RankWatchTest, AStoppedProcessWaitsForNobody) {
  BeatSnapshot b = waiting(1);
  b.stopped = true;
  for (const int r : {0, 2, 3}) beat(0, r, b);
  beat(0, 1, {.activity = Activity::kMeeting, .beats = 1});
  EXPECT_EQ(watch_.find_hang(31).rank, 0);
  EXPECT_TRUE(watch_.find_hang(31).stopped);
}

// Rank 1 of the run is lost, and the others have gone on without it: in their group, 2 is rank 1 and 3 is rank 2.
TEST_F(RankWatchTest, AGroupThatIsSmallerThanTheRunHasOtherNumbers) {
  const auto of_group = [](int32_t rank, BeatSnapshot b) {
    b.generation = 2, b.rank = rank;
    return b;
  };
  watch_.end(1);
  beat(0, 0, of_group(0, waiting(2)));
  beat(0, 2, of_group(1, waiting(2)));
  beat(0, 3, of_group(2, computing(1)));
  EXPECT_EQ(watch_.find_hang(31).rank, 3);
  // A ring: two wait for 2, one for 0. Its successor is none of them yet.
  watch_.begin(0, 1);
  beat(0, 1, {.activity = Activity::kMeeting, .beats = 1});
  beat(0, 0, of_group(0, waiting(1)));
  beat(0, 2, of_group(1, waiting(0)));
  beat(0, 3, of_group(2, waiting(1)));
  EXPECT_EQ(watch_.find_hang(62).rank, 2);
  // 2 is gone, and the others wait for it still: nobody hangs.
  watch_.end(2);
  EXPECT_EQ(watch_.find_hang(62).rank, -1);
}

TEST_F(RankWatchTest, AStragglerIsToldOnceAfterSixteenSteps) {
  int told = 0;
  for (int step = 1; step <= 40; ++step) {
    for (int r = 0; r < 4; ++r) {
      beat(step, r, computing(step, step, r == 2 ? 1.6 : 1));
      if (!watch_.is_slow(r)) continue;
      ++told;
      EXPECT_EQ(r, 2);
      EXPECT_EQ(step, 17);  // the first beat is no step
    }
  }
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace moraine
