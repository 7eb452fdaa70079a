// UsefulShare: fails if a step counts twice, a start that nothing was lost by counts, or two faults at once are two.
#include "supervisor/useful_share.h"

#include <gtest/gtest.h>

#include "supervisor/state_json.h"

namespace moraine {
namespace {

BeatSnapshot beat_of(int64_t step, double seconds) {
  BeatSnapshot beat{};
  beat.step = step;
  beat.step_seconds = seconds;
  return beat;
}

LedgerEntry entry_of(double begin, double recovery) {
  LedgerEntry e;
  e.begin_unix = begin;
  e.phases = {{"detection", recovery / 2}, {"loading", recovery / 2}, {"first_step", 100}};
  return e;
}

TEST(UsefulShare, CountsEachStepOnce) {
  UsefulTime time;
  EXPECT_EQ(time.share(100, {}).watched, 0) << "no step yet";
  time.hear(100, beat_of(7, 2));  // what came before is not known
  EXPECT_EQ(time.share(101, {}).watched, 0);
  time.hear(102, beat_of(8, 2));
  time.hear(102.1, beat_of(8, 2));  // another rank
  time.hear(110, beat_of(6, 2));    // computed again
  time.hear(112, beat_of(7, 2));
  time.hear(118, beat_of(10, 1.5));  // two since the last look
  const UsefulShare share = time.share(120, {});
  EXPECT_DOUBLE_EQ(share.watched, 20);
  EXPECT_DOUBLE_EQ(share.useful, (2 + 2 * 1.5) / 20);
  EXPECT_DOUBLE_EQ(share.step_seconds, 5.0 / 3);
  EXPECT_EQ(share.interruptions, 0);
}

TEST(UsefulShare, TellsWhatLiesBetweenSteps) {
  UsefulTime time;
  double now = 100;
  for (int64_t step = 1; step <= 9; step += 2) {
    now += step == 5 ? 60 : 5;  // one is interrupted
    time.hear(now, beat_of(step, 2));
  }
  EXPECT_DOUBLE_EQ(time.share(now, {}).between_seconds, 0.5);
}

// The supervisor is killed at 110, and the next one looks first at 130: the run had done ten steps.
TEST(UsefulShare, GoesOnFromWhatWasKept) {
  UsefulTime time;
  for (int64_t step = 1; step <= 6; ++step)
    time.hear(100 + 2.0 * double(step - 1), beat_of(step, 1));
  const Json kept = parse_json(json_text(state_to_json(time)));
  UsefulTime next;
  state_from_json(kept, &next);
  next.hear(130, beat_of(16, 1));
  const std::vector<LedgerEntry> entries = {entry_of(90, 4), entry_of(105, 4), entry_of(120, 2)};
  const UsefulShare share = next.share(150, entries);
  EXPECT_DOUBLE_EQ(share.watched, 50);
  EXPECT_DOUBLE_EQ(share.useful, 15.0 / 50);
  EXPECT_EQ(share.interruptions, 2);
  EXPECT_DOUBLE_EQ(share.recovery, 3);
  UsefulTime empty;
  state_from_json(parse_json("{\"begin\":3,\"step\":5}"), &empty);
  EXPECT_EQ(empty.share(150, entries).watched, 0) << "damaged";
}

TEST(UsefulShare, FaultsThatOverlapAreOneInterruption) {
  UsefulTime time;
  time.hear(100, beat_of(1, 1));
  time.hear(101, beat_of(2, 1));
  LedgerEntry noted = entry_of(150, 4);
  noted.phases.clear();                                       // nothing was started again
  const std::vector<LedgerEntry> entries = {entry_of(90, 4),  // before
                                            entry_of(120, 4), entry_of(122, 4), noted,
                                            entry_of(140, 2), entry_of(126, 2)};
  const UsefulShare share = time.share(200, entries);
  EXPECT_EQ(share.interruptions, 3);  // 120 to 126, 126 to 128, 140 to 142
  EXPECT_DOUBLE_EQ(share.recovery, (6 + 2 + 2) / 3.0);
}

}  // namespace
}  // namespace moraine
