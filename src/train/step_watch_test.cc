// Fails if a step that must not count does, or a trace has a part of a step beside whole ones.
#include "train/step_watch.h"

#include <gtest/gtest.h>

#include "train/time_split.h"
#include "train/trace.h"

namespace moraine {
namespace {

// A step of `operations` of one second each, and one second of its own.
void take_step(StepWatch& watch, Profile& profile, int64_t operations, int64_t tokens) {
  profile.clear();
  watch.begin(profile);
  for (int64_t i = 0; i < operations; ++i) profile.add({.name = "work", .seconds = 1}, 0);
  const double inside = static_cast<double>(operations);
  profile.add({.name = "step", .span = Span::kPhase, .seconds = inside + 1}, inside);
  watch.end(profile, tokens);
}

TEST(StepWatch, LeavesOutTheFirstStepAndThoseThatWereRolledBack) {
  StepWatch watch(2);
  Profile profile;
  take_step(watch, profile, 100, 10);
  EXPECT_EQ(watch.watched(), 0);
  take_step(watch, profile, 3, 2);
  take_step(watch, profile, 50, 0);
  EXPECT_EQ(watch.watched(), 1);
  EXPECT_FALSE(watch.complete());
  take_step(watch, profile, 5, 2);
  EXPECT_TRUE(watch.complete());
  EXPECT_EQ(row_of(watch.rows(), "work").seconds, 8);
  EXPECT_EQ(row_of(watch.rows(), "step").calls, 2);
  EXPECT_EQ(watch.token_seconds(), (std::vector<double>{2, 3}));
  EXPECT_EQ(watch.traced(), 2);
  EXPECT_EQ(watch.events().size(), 10u);
}

TEST(StepWatch, TracesWholeStepsWhileThereIsRoom) {
  StepWatch watch(4);
  Profile profile;
  take_step(watch, profile, 1, 1);
  const int64_t most_of_it = kTraceEventsMost / 2 + 10;
  for (int i = 0; i < 4; ++i) take_step(watch, profile, most_of_it, 1);
  EXPECT_EQ(watch.watched(), 4);
  EXPECT_EQ(watch.traced(), 1);
  EXPECT_EQ(watch.events().size(), static_cast<size_t>(most_of_it + 1));
  EXPECT_STREQ(watch.events().back().name, "step");
}

TEST(StepWatch, TracesTheBeginningOfAStepThatIsTooLarge) {
  StepWatch watch(2);
  Profile profile;
  take_step(watch, profile, 1, 1);
  for (int i = 0; i < 2; ++i) take_step(watch, profile, kTraceEventsMost + 5, 1);
  EXPECT_EQ(watch.watched(), 2);
  EXPECT_EQ(watch.traced(), 0);
  EXPECT_EQ(watch.events().size(), static_cast<size_t>(kTraceEventsMost));
}

TEST(StepWatch, OfNoStepsWatchesNothing) {
  StepWatch watch(0);
  Profile profile;
  for (int i = 0; i < 3; ++i) take_step(watch, profile, 2, 1);
  EXPECT_FALSE(watch.complete());
  EXPECT_EQ(watch.watched(), 0);
  EXPECT_TRUE(watch.rows().empty());
  EXPECT_TRUE(watch.events().empty());
}

}  // namespace
}  // namespace moraine
