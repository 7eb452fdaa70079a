// Fails if a trace is no JSON of the Trace Event Format, or its events do not enclose each other as the spans did.
#include "train/trace.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace moraine {
namespace {

constexpr double kStart = 123456.7;  // seconds since some start: large beside a span

Profile::Event event(const char* name, Span span, double begin, double end) {
  return {.name = name, .span = span, .begin = kStart + begin, .seconds = end - begin};
}

TEST(Trace, IsAListOfCompleteEvents) {
  std::vector<Profile::Event> events = {event("linear_forward", Span::kOperation, 1e-4, 3e-4),
                                        event("ranks: votes", Span::kRanks, 5e-4, 6e-4),
                                        event("step", Span::kPhase, 0, 1e-3)};
  events[0].flops = 100;
  events[0].bytes = 12;
  const Json trace = parse_json(trace_text(events, 3));
  const Json& all = trace.at("traceEvents");
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].at("ph").text(), "M");
  EXPECT_EQ(all[0].at("name").text(), "thread_name");
  EXPECT_EQ(all[0].at("args").at("name").text(), "rank 3");
  const char* const names[] = {"linear_forward", "ranks: votes", "step"};
  const char* const categories[] = {"operation", "ranks", "phase"};
  for (size_t i = 0; i < 3; ++i) {
    const Json& e = all[i + 1];
    EXPECT_EQ(e.at("name").text(), names[i]);
    EXPECT_EQ(e.at("cat").text(), categories[i]);
    EXPECT_EQ(e.at("ph").text(), "X");
    EXPECT_EQ(e.at("pid"), all[0].at("pid"));
    EXPECT_EQ(e.at("tid"), all[0].at("tid"));
    EXPECT_NEAR(e.at("ts").get<double>(), 1e6 * (events[i].begin - kStart), 0.2);
    EXPECT_NEAR(e.at("dur").get<double>(), 1e6 * events[i].seconds, 0.3);
  }
  EXPECT_EQ(all[1].at("args").at("flops").get<double>(), 100);
  EXPECT_EQ(all[1].at("args").at("bytes").get<double>(), 12);
  EXPECT_TRUE(all[3].at("args").empty());
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
  const Json trace = parse_json(trace_text(events, 0));
  const Json& all = trace.at("traceEvents");
  double before = 0;
  for (size_t i = 1; i + 1 < all.size(); ++i) {
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
  EXPECT_EQ(parse_json(trace_text({}, 0)).at("traceEvents").size(), 1u);
}

}  // namespace
}  // namespace moraine
