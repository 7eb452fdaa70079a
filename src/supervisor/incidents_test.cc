// Incidents: what the ledger says that a recovery was made of, on a clock that is a number. Fails if a part is counted
// as another, an entry is lost, or one is written before the new process could be heard.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>

#include "supervisor/supervisor.h"

namespace moraine {
namespace {

struct Moments {  // of a process; none is later than 100
  double met = 100, loaded = 100, computed = 100;
};

// Two ranks of five steps; the second is killed at 10, started again at once, and runs from 10.1 on.
class LostAndStarted : public ::testing::Test {
 protected:
  static SuperviseOptions options() {
    SuperviseOptions o;
    o.ranks = 2;
    o.can_replace = true;
    o.hang_seconds = 100;
    return o;
  }
  LostAndStarted() {
    tell(0, TimePassed{});
    for (int r = 0; r < 2; ++r) tell(0.1, RankStarted{r, 100 + r});
    for (int r = 0; r < 2; ++r) beat(1, r, 3, 4);
    for (int r = 0; r < 2; ++r) beat(2, r, 3, 5);
    tell(10, RankEnded{.rank = 1, .exit_code = -1, .signal = SIGKILL, .last_lines = {}});
    tell(10.1, RankStarted{1, 200});
  }
  void tell(double now, const RunEvent& event) {
    for (const RunEffect& effect : supervisor_.handle(now, event)) {
      if (const auto* e = std::get_if<WriteLedger>(&effect)) ledger_.push_back(e->entry);
    }
  }
  void beat(double now, int r, int64_t generation, int64_t step, const Moments& moments = {}) {
    const auto ago = [now](double moment) { return moment > now ? -1 : now - moment; };
    tell(now, RankBeat{r,
                       {.generation = generation,
                        .activity = Activity::kComputing,
                        .beats = step,
                        .step = step,
                        .met_ago = ago(moments.met),
                        .loaded_ago = ago(moments.loaded),
                        .computed_ago = ago(moments.computed)}});
  }
  std::string phases() const {
    std::string text = fmt::format("{} entries:", ledger_.size());
    if (ledger_.empty()) return text;
    for (const LedgerPhase& p : ledger_[0].phases)
      text += fmt::format(" {} {:.2f}", p.name, p.seconds);
    return text;
  }

  Supervisor supervisor_{0, options()};
  std::vector<LedgerEntry> ledger_;
};

// All that the new rank did lies between two looks, and another one tells of the step.
TEST_F(LostAndStarted, EachPartOfARecoveryIsToldHoweverShortItIs) {
  beat(11, 0, 4, 6);
  EXPECT_EQ(phases(), "0 entries:") << "the new rank was not heard";
  beat(11, 1, 4, 6, {10.3, 10.4, 10.7});
  EXPECT_EQ(phases(),
            "1 entries: detection 0.00 decision 0.00 respawn 0.30 meeting 0.10 loading 0.30 "
            "first_step 0.30");
  EXPECT_DOUBLE_EQ(ledger_[0].seconds_lost, 1);
}

TEST_F(LostAndStarted, ClocksOfHostsThatDifferMoveNothingBeyondTheEnd) {
  beat(11, 0, 4, 6);
  beat(11.2, 1, 4, 6, {10.3, 10.4, 11.1});
  EXPECT_EQ(phases(),
            "1 entries: detection 0.00 decision 0.00 respawn 0.30 meeting 0.10 loading 0.60 "
            "first_step 0.00");
}

TEST_F(LostAndStarted, WhatWasDoneBehindTheEndIsNoPartOfIt) {
  beat(11, 0, 4, 6);
  beat(12, 1, 5, 6, {10.3, 11.4, 11.7});  // the other went on alone, and it came to the next group
  EXPECT_EQ(phases(), "1 entries: detection 0.00 decision 0.00 respawn 0.30 without 0.70");
}

TEST_F(LostAndStarted, NobodyWaitsLongForTheWordOfTheNewRank) {
  beat(11, 0, 4, 6);
  beat(12.9, 0, 4, 8);
  EXPECT_EQ(phases(), "0 entries:");
  beat(13, 0, 4, 9);
  EXPECT_EQ(phases(), "1 entries: detection 0.00 decision 0.00 without 1.00");
  EXPECT_DOUBLE_EQ(ledger_[0].seconds_lost, 1);
}

TEST_F(LostAndStarted, WhoWaitsForTheWordIsInTheState) {
  beat(11, 0, 4, 6);
  Supervisor next(12, options(), parse_json(json_text(supervisor_.save(11.5))));
  int entries = 0;
  for (const RunEffect& effect : next.handle(13, TimePassed{}))
    entries += std::holds_alternative<WriteLedger>(effect);
  EXPECT_EQ(entries, 1);
}

}  // namespace
}  // namespace moraine
