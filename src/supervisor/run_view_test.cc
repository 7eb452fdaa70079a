// RunView: fails if what a run did is not in its files, if it is written too often, or if a full disk ends anything.
#include "supervisor/run_view.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "base/test_folder.h"
#include "base/test_page.h"
#include "supervisor/test_listener.h"

namespace moraine {
namespace {

using namespace testing;

SupervisedRun run_of(int64_t step) {
  SupervisedRun run;
  run.step = step;
  run.ranks.resize(2);
  for (RankStatus& r : run.ranks) r.phase = RankPhase::kRunning;
  return run;
}

RankBeat beat_of(int rank, int64_t step, Activity activity) {
  BeatSnapshot beat;
  beat.activity = activity;
  beat.step = step;
  beat.steps_total = 50;
  beat.step_seconds = 0.1;
  beat.tokens_per_second = 4096;
  return {rank, beat};
}

TEST(RunView, ALineASecondAndAPageAfterAnIncident) {
  const TestFolder tree;
  RunView view(posix_file_system(), tree.path(), {});
  const auto let_pass = [&](double from, double to) {
    for (double now = from; now < to; now += 0.25) {
      const auto step = static_cast<int64_t>(now);
      view.hear(beat_of(0, step, Activity::kComputing));
      view.hear(beat_of(1, step, now < 3 ? Activity::kComputing : Activity::kMeeting));
      view.show(now, run_of(step));
    }
  };
  let_pass(0, 5);
  const std::string lines = tree.read("timeline.jsonl");
  EXPECT_EQ(count(lines, "\n"), 5);
  EXPECT_EQ(count(lines, "\"ranks\":\"cc\""), 3);
  EXPECT_EQ(count(lines, "\"ranks\":\"cm\""), 2);
  EXPECT_EQ(count(lines, "4096"), 5);
  EXPECT_EQ(count(tree.read("incidents.html"), "Nothing happened."), 1);

  LedgerEntry entry;
  entry.id = 9;
  entry.decision = "start it again";
  view.see(5, WriteLedger{entry});
  let_pass(5, 9);  // not so soon after the first
  EXPECT_EQ(count(tree.read("incidents.html"), "start it again"), 0);
  let_pass(9, 11);
  EXPECT_EQ(count(tree.read("incidents.html"), "start it again"), 1);
  view.end(11, run_of(11), "exit 0");
  const std::string page = tree.read("incidents.html");
  expect_sound(page);
  EXPECT_EQ(count(page, "exit 0"), 1);
  EXPECT_EQ(count(page, "<b>11 of 50</b>"), 1);
}

// Each page counts from 0; a process that is found again goes on with its own.
TEST(RunView, StrangersOfAllProcessesAreSummed) {
  const TestFolder tree;
  RunView view(posix_file_system(), tree.path(), {});
  double now = 0;
  const auto sum = [&](int rank, int64_t strangers) {
    RankBeat e = beat_of(rank, 1, Activity::kComputing);
    e.beat.strangers = strangers;
    view.hear(e);
    const std::string text = view.metrics(++now, run_of(1)),
                      name = "moraine_rails_strangers_total ";
    const size_t at = text.rfind(name) + name.size();
    return text.substr(at, text.find('\n', at) - at);
  };
  view.hear(RankStarted{0, 100});
  view.hear(RankStarted{1, 101});
  EXPECT_EQ(sum(0, 0), "0");
  EXPECT_EQ(sum(0, 2), "2");
  EXPECT_EQ(sum(1, 3), "5");
  view.hear(RankStarted{1, 101});
  EXPECT_EQ(sum(1, 4), "6");
  view.hear(RankStarted{1, 102});
  EXPECT_EQ(sum(1, 7), "13");
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(sum(1, -kMost), "13");
  for (int times = 0; times < 3; ++times) {  // more than there are numbers
    EXPECT_EQ(sum(1, kMost).substr(0, 5), "9.223");
    EXPECT_EQ(sum(1, -kMost).substr(0, 5), "9.223");
  }
}

TEST(RunView, SpeedIsNothingWhileNoStepIsDone) {
  const TestFolder tree;
  RunView view(posix_file_system(), tree.path(), {});
  view.hear(beat_of(0, 7, Activity::kComputing));
  for (double now = 0; now < 10; now += 1) view.show(now, run_of(7));
  EXPECT_EQ(count(tree.read("timeline.jsonl"), "\"tokens_per_s\":4096"), 2);
}

TEST(RunView, AMomentWithoutAProcessIsInItsSecond) {
  const TestFolder tree;
  RunView view(posix_file_system(), tree.path(), {});
  SupervisedRun gone = run_of(1);
  gone.ranks[1].phase = RankPhase::kWaiting;
  for (int i = 0; i <= 300; ++i) view.show(i * 0.01, i == 150 ? gone : run_of(1));
  EXPECT_EQ(count(tree.read("timeline.jsonl"), "\"ranks\":\"cx\""), 1);
  EXPECT_EQ(count(tree.read("timeline.jsonl"), "\"ranks\":\"cc\""), 3);
}

TEST(RunView, PathsThatAreLostAreInTheLine) {
  const TestFolder tree;
  RunView view(posix_file_system(), tree.path(), {});
  LogEvent line;
  line.name = "rails.lost";
  line.fields = {{"peer", "1"}, {"rail", "0"}};
  view.hear(RankLogged{0, line});
  view.show(0, run_of(1));
  EXPECT_EQ(count(tree.read("timeline.jsonl"), "\"lost\":true"), 1);
  view.show(1, run_of(1));
  EXPECT_EQ(count(tree.read("timeline.jsonl"), "\"lost\":true"), 1);
}

TEST(RunView, GoesOnWithWhatASupervisorBeforeHasWritten) {
  const TestFolder tree;
  LedgerEntry entry;
  entry.decision = "long ago";
  tree.write("ledger.jsonl", ledger_line(entry));
  tree.write("timeline.jsonl", "rubbish\n");
  RunView view(posix_file_system(), tree.path(), {});
  view.show(0, run_of(1));
  EXPECT_EQ(count(tree.read("incidents.html"), "long ago"), 1);
}

// A supervisor was killed and started again: the share of useful time is of both.
TEST(RunView, TheUsefulShareGoesOn) {
  const TestFolder tree;
  const auto let_pass = [&](RunView& view, int from, int to) {
    for (int second = from; second <= to; ++second) {
      view.hear(beat_of(0, second, Activity::kComputing));
      view.show(second, run_of(second));
    }
  };
  Json left;
  {
    RunView view(posix_file_system(), tree.path(), {});
    let_pass(view, 1, 20);
    left = parse_json(json_text(view.left()));
  }
  RunView view(posix_file_system(), tree.path(), {});
  view.go_on(left);
  let_pass(view, 30, 41);
  view.end(41, run_of(41), "exit 0");
  EXPECT_EQ(count(tree.read("incidents.html"), "of 40 s went into steps that count"), 1)
      << tree.read("incidents.html");
}

TEST(RunView, AFolderThatIsGoneIsNoError) {
  const TestFolder tree;
  RunView view(posix_file_system(), tree.file("none"), {});
  for (double now = 0; now < 100; now += 1) view.show(now, run_of(1));
  view.end(100, run_of(1), "exit 0");
  tree.write("damaged/ledger.jsonl", "{\"id\":true}\n");
  RunView(posix_file_system(), tree.file("damaged"), {}).show(0, run_of(1));
}

TEST(RunView, AlertsAndAnEndByAFaultAreTold) {
  const TestFolder tree;
  TestListener server("HTTP/1.1 200 OK\r\n\r\n");
  {
    RunView view(posix_file_system(), tree.file("run/supervise"),
                 {.webhook = fmt::format("http://127.0.0.1:{}/", server.port())});
    view.see(0, RaiseAlert{RunFault::kHang, "rank 1 \"stands\" still"});
    view.see(0, FinishRun{18, "asked to"});
    view.see(0, FinishRun{15, "too often"});
    server.wait_for_requests(2);
  }
  const std::vector<std::string> got = server.requests();
  ASSERT_EQ(got.size(), 2u);
  const Json alert = parse_json(got[0].substr(got[0].find("\r\n\r\n")));
  EXPECT_EQ(alert.at("fault").text(), "hang");
  EXPECT_EQ(alert.at("text").text(),
            fmt::format("moraine {}: hang: rank 1 \"stands\" still", tree.file("run")));
  EXPECT_EQ(count(got[1], "ended with 15: too often"), 1);
  EXPECT_THROW(RunView(posix_file_system(), tree.path(), {.webhook = "nowhere"}), Error);
}

}  // namespace
}  // namespace moraine
