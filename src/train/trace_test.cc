// Fails if a trace is no JSON of the Trace Event Format, its events do not enclose each other as the spans did, or
// ranks do not stand beside each other at the times they had.
#include "train/trace.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace moraine {
namespace {

constexpr double kStart = 123456.7;  // seconds since some start: large beside a span

Profile::Event event(const char* name, Span span, double begin, double end) {
  return {.name = name, .span = span, .begin = kStart + begin, .seconds = end - begin};
}

std::string text_of(const std::vector<Profile::Event>& events, int rank) {
  return trace_text(std::vector<RankTrace>{{.rank = rank, .start = 0, .events = events}});
}

TEST(Trace, IsAListOfCompleteEvents) {
  std::vector<Profile::Event> events = {event("linear_forward", Span::kOperation, 1e-4, 3e-4),
                                        event("ranks: votes", Span::kRanks, 5e-4, 6e-4),
                                        event("step", Span::kPhase, 0, 1e-3)};
  events[0].flops = 100;
  events[0].bytes = 12;
  const Json trace = parse_json(text_of(events, 3));
  const Json& all = trace.at("traceEvents");
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].at("ph").text(), "M");
  EXPECT_EQ(all[0].at("name").text(), "process_name");
  EXPECT_EQ(all[0].at("args").at("name").text(), "rank 3");
  EXPECT_EQ(all[1].at("name").text(), "process_sort_index");
  EXPECT_EQ(all[1].at("args").at("sort_index").get<int64_t>(), 3);
  const char* const names[] = {"linear_forward", "ranks: votes", "step"};
  const char* const categories[] = {"operation", "ranks", "phase"};
  for (size_t i = 0; i < 3; ++i) {
    const Json& e = all[i + 2];
    EXPECT_EQ(e.at("name").text(), names[i]);
    EXPECT_EQ(e.at("cat").text(), categories[i]);
    EXPECT_EQ(e.at("ph").text(), "X");
    EXPECT_EQ(e.at("pid"), all[0].at("pid"));
    EXPECT_NEAR(e.at("ts").get<double>(), 1e6 * (events[i].begin - kStart), 0.2);
    EXPECT_NEAR(e.at("dur").get<double>(), 1e6 * events[i].seconds, 0.3);
  }
  EXPECT_EQ(all[2].at("args").at("flops").get<double>(), 100);
  EXPECT_EQ(all[2].at("args").at("bytes").get<double>(), 12);
  EXPECT_TRUE(all[4].at("args").empty());
}

// Neighbours that touch, and children that fill their parent, at times that are no round numbers.
TEST(Trace, RoundingKeepsWhatEnclosesWhat) {
  std::vector<Profile::Event> events;
  double at = 0;
  for (int i = 0; i < 1000; ++i) {
    const double end = at + 1e-7 * (1 + i % 7) / 3;
    events.push_back(event("a", Span::kOperation, at, end));
    at = end;
  }
  events.push_back(event("all", Span::kPhase, 0, at + 1e-9));
  const Json trace = parse_json(text_of(events, 0));
  const Json& all = trace.at("traceEvents");
  double before = 0;
  for (size_t i = 2; i + 1 < all.size(); ++i) {
    const double begin = all[i].at("ts").get<double>(),
                 end = begin + all[i].at("dur").get<double>();
    EXPECT_GE(begin + 0.125, before) << i;
    EXPECT_LE(begin, end) << i;
    // Exact in eighths, so in three decimals.
    EXPECT_EQ(begin * 8, static_cast<double>(static_cast<int64_t>(begin * 8)));
    before = end;
  }
  EXPECT_LE(before, all.back().at("ts").get<double>() + all.back().at("dur").get<double>());
}

TEST(Trace, OfNothingIsATraceToo) {
  EXPECT_EQ(parse_json(text_of({}, 0)).at("traceEvents").size(), 2u);
  EXPECT_EQ(parse_json(trace_text({})).at("traceEvents").size(), 0u);
}

// Clocks that began at other times, and ranks that began to watch at one.
TEST(Trace, EachRankIsAProcessAndAllHaveOneTime) {
  const std::vector<Profile::Event> one = {event("a", Span::kOperation, 2, 3)},
                                    two = {event("b", Span::kOperation, 1001, 1002)};
  const Json trace = parse_json(
      trace_text(std::vector<RankTrace>{{.rank = 0, .start = kStart, .events = one},
                                        {.rank = 1, .start = kStart + 1000, .events = two}}));
  const Json& all = trace.at("traceEvents");
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[2].at("name").text(), "a");
  EXPECT_NEAR(all[2].at("ts").get<double>(), 1e6, 0.3);
  EXPECT_EQ(all[3].at("args").at("name").text(), "rank 1");
  EXPECT_EQ(all[5].at("name").text(), "b");
  EXPECT_NEAR(all[5].at("ts").get<double>(), 0, 0.3);
  EXPECT_EQ(all[2].at("pid"), all[0].at("pid"));
  EXPECT_EQ(all[5].at("pid"), all[3].at("pid"));
  EXPECT_NE(all[5].at("pid"), all[2].at("pid"));
}

TEST(Trace, HasRoomForSoManySpans) {
  EXPECT_EQ(trace_events_of(0, 1), kTraceEventsMost);
  EXPECT_EQ(trace_events_of(3, 4), kTraceEventsMost);
  EXPECT_EQ(trace_events_of(7, 8), kTraceEventsMost / 2);
  EXPECT_EQ(trace_events_of(15, 4096), kTraceEventsMost / 4);
  EXPECT_EQ(trace_events_of(16, 4096), 0);
}

}  // namespace
}  // namespace moraine
