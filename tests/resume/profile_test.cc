// Profile: `train --profile` reports where the time went, and changes nothing.
//
// Fails if a run with it has other bits, on one rank or several, shares do not add up, or events of the trace are not
// inside their steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "base/json.h"
#include "base/test_folder.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

class TrainProfile : public ::testing::Test {
 protected:
  TestFolder folder;
  TinyRun tiny{folder.path()};

  // stop_after: steps after which a signal comes; 0: none does.
  Outcome profiled(const RunConfig& config, const std::string& out, int64_t steps, int ranks = 1,
                   int64_t stop_after = 0) {
    std::atomic<int> stop{0};
    WatchedFileSystem fs(posix_file_system(), [&](const std::string& path) {
      if (path.ends_with("metrics.jsonl") && --stop_after == 0) stop = 15;
    });
    RunOptions options;
    options.stop_signal = &stop;
    options.out = out;
    options.profile_steps = steps;
    return tiny.train(fs, config, options, ranks);
  }
};

struct Lane {
  std::vector<Json> events;  // complete ones, in order of time, enclosing ones first
  int64_t count(const std::string& name) const {
    return std::count_if(events.begin(), events.end(),
                         [&](const Json& e) { return e.at("name").text() == name; });
  }
};

double begin_of(const Json& e) { return e.at("ts").get<double>(); }
double end_of(const Json& e) { return begin_of(e) + e.at("dur").get<double>(); }

// Of each rank.
std::vector<Lane> read_lanes(const std::string& out) {
  std::vector<Lane> lanes;
  const Json trace = parse_json(posix_file_system().read(out + "/trace.json"));
  for (const Json& e : trace.at("traceEvents")) {
    if (e.at("name").text() == "process_name") {
      EXPECT_EQ(e.at("args").at("name").text(), "rank " + std::to_string(lanes.size()));
      lanes.emplace_back();
    }
    EXPECT_EQ(e.at("pid").get<size_t>(), lanes.size());
    if (e.at("ph").text() == "X") lanes.back().events.push_back(e);
  }
  for (Lane& lane : lanes) {
    std::stable_sort(lane.events.begin(), lane.events.end(), [](const Json& a, const Json& b) {
      if (begin_of(a) != begin_of(b)) return begin_of(a) < begin_of(b);
      return end_of(a) > end_of(b);
    });
  }
  return lanes;
}

// Each event ends before the one that was open when it began.
void expect_nested(const Lane& lane) {
  std::vector<Json> open;
  for (const Json& e : lane.events) {
    while (!open.empty() && end_of(open.back()) <= begin_of(e)) open.pop_back();
    if (open.empty()) {
      EXPECT_EQ(e.at("name").text(), "step");
    } else {
      EXPECT_LE(end_of(e), end_of(open.back())) << json_text(e) << json_text(open.back());
    }
    open.push_back(e);
  }
}

TEST_F(TrainProfile, HasTheBitsOfTheRunWithout) {
  const RunConfig config = tiny.config(tiny.rich("bf16"));
  const Outcome plain = tiny.train(config, tiny.out("plain"));
  ASSERT_TRUE(plain.result) << plain.hash();
  EXPECT_EQ(plain.log.find("what binds: "), std::string::npos);
  EXPECT_FALSE(posix_file_system().exists(tiny.out("plain") + "/trace.json"));
  for (const int ranks : {1, 2}) {
    const std::string out = tiny.out("profiled" + std::to_string(ranks));
    const Outcome with = profiled(config, out, 3, ranks);
    EXPECT_EQ(with.hash(), plain.hash()) << ranks;
    EXPECT_NE(with.log.find("profile of rank 0 of " + std::to_string(ranks) + ": 3 steps"),
              std::string::npos)
        << with.log;
    EXPECT_NE(with.log.find("what binds: "), std::string::npos) << with.log;
    EXPECT_EQ(with.log.find("ranks: counts") != std::string::npos, ranks > 1) << with.log;
    EXPECT_EQ(with.log.find("ms a step, over the ranks") != std::string::npos, ranks > 1);
    const std::vector<Lane> lanes = read_lanes(out);
    EXPECT_EQ(lanes.size(), static_cast<size_t>(ranks));
    for (const Lane& lane : lanes) {
      EXPECT_EQ(lane.count("step"), 3);
      EXPECT_EQ(lane.count("optimizer"), 3);
      EXPECT_EQ(lane.count("checkpoint"), 3);
      EXPECT_EQ(lane.count("forward"), lane.count("backward"));
      EXPECT_EQ(lane.count("forward"), lane.count("data"));
      EXPECT_GT(lane.count("linear_forward"), 10);
      EXPECT_EQ(lane.count("validation"), 1);  // after step 4, of steps 2 to 4
      expect_nested(lane);
    }
  }
}

TEST_F(TrainProfile, SharesOfARunAddUp) {
  const Outcome with = profiled(tiny.config(tiny.rich("f32")), tiny.out("run"), 100);
  ASSERT_TRUE(with.result) << with.hash();
  // The run ends before so many: its steps behind the first.
  EXPECT_NE(with.log.find("profile of rank 0 of 1: 8 steps"), std::string::npos) << with.log;
  const size_t begin = with.log.find("\noperation "), end = with.log.find("\nall ", begin);
  ASSERT_NE(end, std::string::npos) << with.log;
  double sum = 0;
  int lines = 0;
  for (size_t at = with.log.find('%', with.log.find('\n', begin + 1)); at < end;
       at = with.log.find('%', at + 1), ++lines)
    sum += std::strtod(with.log.c_str() + with.log.find_last_of(' ', at), nullptr);
  EXPECT_GT(lines, 20);
  EXPECT_NEAR(sum, 100, 0.05 * lines) << with.log;
}

TEST_F(TrainProfile, ReportsBeforeASignalEndsTheRun) {
  const std::string out = tiny.out("stopped");
  const Outcome run = profiled(tiny.config(tiny.rich("f32")), out, 8, 2, 4);
  ASSERT_TRUE(run.error);
  EXPECT_EQ(run.error->code(), Code::kInterrupted) << run.error->what();
  EXPECT_NE(run.log.find("profile of rank 0 of 2: 3 steps"), std::string::npos) << run.log;
  const std::vector<Lane> lanes = read_lanes(out);
  EXPECT_EQ(lanes.size(), 2u);
  for (const Lane& lane : lanes) {
    EXPECT_EQ(lane.count("step"), 3);
    expect_nested(lane);
  }
}

TEST_F(TrainProfile, SaysSoIfNoStepWasMeasured) {
  RunConfig config = tiny.config(
      "[train]\nsteps = 1\nslots = 1\nsequence = 32\nbatch_tokens = 32\nthreads = 1\n"
      "dtype = \"f32\"\n");
  const Outcome one = profiled(config, tiny.out("one"), 3);
  ASSERT_TRUE(one.result) << one.hash();
  EXPECT_NE(one.log.find("profile: no step behind the first one"), std::string::npos) << one.log;
  EXPECT_FALSE(posix_file_system().exists(tiny.out("one") + "/trace.json"));
}

}  // namespace
}  // namespace moraine
