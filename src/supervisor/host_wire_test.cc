// The wire between a supervisor and an agent: what is said arrives, what is not ours does no harm.
#include "supervisor/host_wire.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "base/random.h"
#include "supervisor/rank_watch.h"
#include "supervisor/state_json.h"

namespace moraine {
namespace {

constexpr int64_t kRanks = 8;

std::string problem_of_report(std::string_view line) {
  std::string problem;
  return parse_report(line, kRanks, &problem) ? "" : problem;
}

std::string problem_of_order(std::string_view line) {
  std::string problem;
  return parse_order(line, kRanks, &problem) ? "" : problem;
}

std::vector<HostReport> reports() {
  HostReading reading = {.host = 3, .oom_kills = 2};
  reading.nics.push_back({.name = "eth0", .errors = 7, .carrier = false});
  return {RankStarted{7, 1234},
          RankStartFailed{1, "no such \"file\"", true},
          RankEnded{.rank = 2, .exit_code = -1, .signal = 9, .last_lines = {"a", "b\n"}},
          RankBeat{0,
                   {.generation = 3,
                    .activity = Activity::kLoading,
                    .step_seconds = 0.25,
                    .tokens_per_second = 4096.5,
                    .loss = 2.5}},
          RankText{0, true, "said\n\x01", 1LL << 40},
          HostLost{0, "gone"},
          HostBack{5},
          HostRead{reading}};
}

std::vector<HostOrder> orders() {
  return {BeginOrder{.work_folder = "/a b",
                     .ranks = 4,
                     .host = 1,
                     .there = {{.rank = 3, .start = 2, .log_offset = 5, .out_offset = 6}}},
          StartOrder{2, 1, {"moraine", "train", "--out", "a \"b\""}}, SignalOrder{1, 15},
          PaceOrder{20}};
}

TEST(HostWire, WhatIsSaidArrives) {
  for (const HostReport& report : reports()) {
    const std::string line = report_line(report);
    EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
    std::string problem;
    const auto heard = parse_report(line, kRanks, &problem);
    ASSERT_TRUE(heard) << problem << " in " << line;
    EXPECT_EQ(report_line(*heard), line);
  }
  for (const HostOrder& order : orders()) {
    const std::string line = order_line(order);
    std::string problem;
    const auto heard = parse_order(line, kRanks, &problem);
    ASSERT_TRUE(heard) << problem << " in " << line;
    EXPECT_EQ(order_line(*heard), line);
  }
  std::string problem;
  const auto beat = parse_report(report_line(reports()[3]), kRanks, &problem);
  EXPECT_EQ(std::get<RankBeat>(*beat).beat.tokens_per_second, 4096.5);
  EXPECT_EQ(std::get<RankBeat>(*beat).beat.loss, 2.5);
  const auto ended = parse_report(report_line(reports()[2]), kRanks, &problem);
  EXPECT_EQ(std::get<RankEnded>(*ended).signal, 9);
  EXPECT_EQ(std::get<RankEnded>(*ended).last_lines, (std::vector<std::string>{"a", "b\n"}));
}

// A run that diverges does so on a host with an agent too, and its beats are not dropped for their loss.
TEST(HostWire, ALossMayBeNoNumber) {
  for (const double loss : {static_cast<double>(NAN), HUGE_VAL, -HUGE_VAL, 1e12, -3.5, 0.0}) {
    std::string problem;
    const std::string line = report_line(RankBeat{1, {.step = 7, .loss = loss}});
    const auto heard = parse_report(line, kRanks, &problem);
    ASSERT_TRUE(heard) << problem << " in " << line;
    const double got = std::get<RankBeat>(*heard).beat.loss;
    EXPECT_TRUE(got == loss || (std::isnan(got) && std::isnan(loss))) << got << " in " << line;
    EXPECT_EQ(std::get<RankBeat>(*heard).beat.step, 7);
  }
  BeatSnapshot old{.loss = 7};  // of a state that was left before
  state_from_json(parse_json("{\"loss\":null}", "old"), &old);
  EXPECT_TRUE(std::isnan(old.loss)) << old.loss;
  EXPECT_NE(problem_of_report("{\"kind\":\"beat\",\"rank\":1,\"beat\":{\"loss\":\"much\"}}"), "");
  EXPECT_NE(problem_of_report("{\"kind\":\"beat\",\"rank\":1,\"beat\":{\"step_seconds\":\"nan\"}}"),
            "");
}

TEST(HostWire, WhatIsNotOursIsNamed) {
  for (const char* line :
       {"", "Welcome to node7!", "{", "[]", "7", "null", "{\"kind\":3}", "{\"kind\":\"ended\"}",
        "{\"rank\":1}", "{\"kind\":\"start\",\"rank\":1}", "{\"kind\":\"started\",\"rank\":8}",
        "{\"kind\":\"started\",\"rank\":-1}", "{\"kind\":\"started\",\"rank\":1.5}",
        "{\"kind\":\"started\",\"rank\":1,\"pid\":\"x\"}",
        "{\"kind\":\"started\",\"rank\":1,\"pid\":1e300}",
        "{\"kind\":\"started\",\"rank\":1,\"pid\":18446744073709551615}",
        "{\"kind\":\"text\",\"rank\":0,\"text\":7}"})
    EXPECT_NE(problem_of_report(line), "") << line;
  for (const char* line :
       {"{\"kind\":\"begin\"}", "{\"kind\":\"begin\",\"version\":2,\"ranks\":1}",
        "{\"kind\":\"begin\",\"ranks\":9}", "{\"kind\":\"begin\",\"ranks\":4,\"there\":[{}]}",
        "{\"kind\":\"begin\",\"ranks\":4,\"there\":[{\"rank\":4}]}",
        "{\"kind\":\"start\",\"rank\":1,\"words\":[1]}", "{\"kind\":\"signal\",\"signal\":9}"})
    EXPECT_NE(problem_of_order(line), "") << line;
}

// Lines of ours that something has bitten into are taken or named; nothing else happens.
TEST(HostWire, DamagedLinesDoNoHarm) {
  std::vector<std::string> lines;
  for (const HostReport& report : reports()) lines.push_back(report_line(report));
  for (const HostOrder& order : orders()) lines.push_back(order_line(order));
  uint64_t drawn = 0;
  const auto draw = [&drawn](size_t below) {
    return static_cast<size_t>(random_below(below, 1, Stream::kTest, 0, drawn++));
  };
  for (int times = 0; times < 20000; ++times) {
    std::string line = lines[draw(lines.size())];
    for (size_t bites = 1 + draw(4); bites > 0 && !line.empty(); --bites) {
      const size_t place = draw(line.size());
      if (draw(3) == 0) {
        line.erase(place, 1 + draw(8));
      } else {
        line[place] = "0123456789-{}[]\",:enul\xff"[draw(23)];
      }
    }
    problem_of_report(line);
    problem_of_order(line);
  }
}

TEST(HostWire, LinesAreCutWhereTheyEnd) {
  WireLines lines;
  lines.add("one\ntw");
  EXPECT_EQ(lines.take(), "one");
  EXPECT_FALSE(lines.take());
  lines.add("o\n\nthree\n");
  EXPECT_EQ(lines.take(), "two");
  EXPECT_EQ(lines.take(), "");
  EXPECT_EQ(lines.take(), "three");
  EXPECT_FALSE(lines.take());
  lines.add(std::string(kWireLineMax + 1, 'x'));
  EXPECT_FALSE(lines.take());
  lines.add("\nfour\n");  // the end of the flood is an empty line
  EXPECT_EQ(lines.take(), "");
  EXPECT_EQ(lines.take(), "four");
}

}  // namespace
}  // namespace moraine
