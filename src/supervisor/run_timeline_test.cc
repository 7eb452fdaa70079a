// RunTimeline: fails if a fault of a second is lost when points are merged, if memory or file grow without end, or if
// what was written does not come back.
#include "supervisor/run_timeline.h"

#include <gtest/gtest.h>

#include "base/test_folder.h"

namespace moraine {
namespace {

using namespace testing;

TimelinePoint second(double end, const std::string& ranks, double speed = 100) {
  return {.begin = end - 1, .end = end, .step = 0, .tokens_per_second = speed, .ranks = ranks};
}

TEST(RunTimeline, AWeekIsSmallAndEveryFaultIsInIt) {
  const TestFolder tree;
  RunTimeline timeline(posix_file_system(), tree.path());
  constexpr int kSeconds = 50000;
  constexpr int kFaults[] = {17, 4711, 25000, 49998};
  for (int s = 0; s < kSeconds; ++s) {
    const bool fault = std::find(std::begin(kFaults), std::end(kFaults), s) != std::end(kFaults);
    timeline.add(second(s + 1, fault ? "cx" : "cc", s < kSeconds / 2 ? 100 : 300), {});
  }
  EXPECT_LT(timeline.points().size(), RunTimeline::kPointsMost);
  EXPECT_GT(timeline.points().size(), RunTimeline::kPointsMost / 2 - 2);
  size_t faults = 0;
  double tokens = 0;
  for (const TimelinePoint& p : timeline.points()) {
    if (p.ranks == "cx") ++faults;
    tokens += p.tokens_per_second * (p.end - p.begin);
  }
  EXPECT_EQ(faults, std::size(kFaults));
  EXPECT_NEAR(tokens, 200.0 * kSeconds, 1);
  EXPECT_EQ(timeline.points().front().begin, 0);
  EXPECT_EQ(timeline.points().back().end, kSeconds);
}

TEST(RunTimeline, ComesBackFromItsFile) {
  const TestFolder tree;
  {
    RunTimeline timeline(posix_file_system(), tree.path());
    timeline.add(second(10, "cc"), {});
    timeline.add(second(11, "cm"), {{0, "1", "2", true}});
    timeline.add(second(12, "cc", 7), {{0, "1", "2", false}, {1, "0", "0", true}});
  }
  tree.write("timeline.jsonl", tree.read("timeline.jsonl") + "{\"time\":13,\"st");  // cut
  RunTimeline timeline(posix_file_system(), tree.path());
  timeline.read();
  ASSERT_EQ(timeline.points().size(), 3u);
  EXPECT_EQ(timeline.points()[1].ranks, "cm");
  EXPECT_EQ(timeline.points()[2].tokens_per_second, 7);
  ASSERT_EQ(timeline.outages().size(), 2u);
  EXPECT_EQ(timeline.outages()[0].begin, 11);
  EXPECT_EQ(timeline.outages()[0].end, 12);
  EXPECT_EQ(timeline.outages()[1].end, -1);

  timeline.add(second(14, "cx"), {});  // its process is gone, and its paths with it
  EXPECT_EQ(timeline.outages()[1].end, 14);
  RunTimeline third(posix_file_system(), tree.path());
  third.read();
  EXPECT_EQ(third.points().size(), 4u);  // the cut line swallowed none
}

TEST(RunTimeline, OtherLinesAreLeftOut) {
  const TestFolder tree;
  tree.write("timeline.jsonl",
             "[]\n7\n{\"time\":\"x\"}\n{\"time\":1,\"step\":1,\"tokens_per_s\":1,\"ranks\":3}\n"
             "{\"time\":2,\"step\":1,\"tokens_per_s\":1,\"ranks\":\"c\",\"rails\":[4]}\n"
             "{\"time\":3,\"step\":1,\"tokens_per_s\":1,\"ranks\":\"c\"}\n");
  RunTimeline timeline(posix_file_system(), tree.path());
  timeline.read();
  ASSERT_EQ(timeline.points().size(), 1u);
  EXPECT_EQ(timeline.points()[0].end, 3);
}

TEST(RunTimeline, AClockThatIsSetBackMakesNoTimeTwice) {
  const TestFolder tree;
  RunTimeline timeline(posix_file_system(), tree.path());
  timeline.add(second(100, "c"), {});
  timeline.add(second(50, "x"), {});
  timeline.add(second(101, "c"), {});
  double end = 0;
  for (const TimelinePoint& p : timeline.points()) {
    EXPECT_GE(p.begin, end);
    EXPECT_GE(p.end, p.begin);
    end = p.end;
  }
}

// Supervisors that come and go leave gaps: nobody knows what was then.
TEST(RunTimeline, GapsStayGapsAndDoNotGrowIt) {
  const TestFolder tree;
  RunTimeline timeline(posix_file_system(), tree.path());
  double now = 0, known = 0;
  for (int i = 0; i < 5000; ++i) {
    now += i == 300 ? 1e6 : 1;
    timeline.add(second(now, "c"), {});
  }
  for (const TimelinePoint& p : timeline.points()) known += p.end - p.begin;
  EXPECT_NEAR(known, 5000, 1);
  for (int i = 0; i < 5000; ++i) timeline.add(second(now += 20, "c"), {});
  EXPECT_LT(timeline.points().size(), RunTimeline::kPointsMost);
}

TEST(RunTimeline, OnlyALineThatWasCutIsEndedByTheNext) {
  const TestFolder tree;
  const auto add = [&](double now) {
    RunTimeline(posix_file_system(), tree.path()).add(second(now, "c"), {});
  };
  add(1);
  add(2);
  EXPECT_EQ(tree.read("timeline.jsonl").find("\n\n"), std::string::npos);
  posix_file_system().truncate(tree.file("timeline.jsonl"), 5);
  add(3);
  const std::string lines = tree.read("timeline.jsonl");
  EXPECT_EQ(lines.find('\n'), 5u) << lines;
  EXPECT_EQ(lines.find("\n\n"), std::string::npos);
}

TEST(RunTimeline, TheFileIsTurnedOver) {
  const TestFolder tree;
  RunTimeline timeline(posix_file_system(), tree.path());
  const std::string many(1 << 20, 'c');  // ranks
  for (int s = 1; s <= 40; ++s) timeline.add(second(s, many), {});
  EXPECT_LT(posix_file_system().file_bytes(tree.file("timeline.jsonl")), 18 << 20);
  EXPECT_LT(posix_file_system().file_bytes(tree.file("timeline.1.jsonl")), 18 << 20);
  EXPECT_EQ(posix_file_system().list(tree.path()).size(), 2u);
}

TEST(RunTimeline, LettersSayWhatRanksDo) {
  SupervisedRun run;
  run.ranks.resize(6);
  std::vector<std::optional<Activity>> activities(6);
  const auto set = [&](size_t r, RankPhase phase, std::optional<Activity> activity) {
    run.ranks[r].phase = phase;
    activities[r] = activity;
  };
  set(0, RankPhase::kRunning, Activity::kWaiting);
  set(1, RankPhase::kRunning, Activity::kLoading);
  set(2, RankPhase::kRunning, std::nullopt);
  set(3, RankPhase::kEnded, Activity::kComputing);
  set(4, RankPhase::kAbsent, Activity::kComputing);
  set(5, RankPhase::kStarting, Activity::kComputing);
  EXPECT_EQ(rank_letters(run, activities), "clcx-t");
  for (const char letter : rank_letters(run, activities))
    EXPECT_NE(kRankLetters.find(letter), std::string_view::npos);
}

}  // namespace
}  // namespace moraine
