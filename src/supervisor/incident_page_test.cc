// IncidentPage: fails if text of others reaches the page as HTML, if a number is wrong, or if the page grows with what
// happened.
#include "supervisor/incident_page.h"

#include <gtest/gtest.h>

#include "base/test_page.h"

namespace moraine {
namespace {

using namespace testing;

constexpr double kBegin = 1767323045;

LedgerEntry entry_of(int64_t id, RunFault fault, double lost) {
  LedgerEntry e;
  e.id = id;
  e.fault = fault;
  e.rank = static_cast<int>(id % 3);
  e.host = "localhost";
  e.evidence = {"rank ended by signal 9"};
  e.decision = "start rank in 0.0 s";
  e.level = RecoveryLevel::kReplace;
  e.begin_unix = kBegin + static_cast<double>(id);
  e.begin = static_cast<double>(id);
  e.end = e.begin + lost;
  e.seconds_lost = lost;
  e.phases = {{"detection", 0.5}, {"decision", 0.001}, {"respawn", 0.25},
              {"meeting", 0.125}, {"loading", 0.375},  {"first_step", 0.0625}};
  return e;
}

std::vector<TimelinePoint> seconds_of(const std::vector<std::string>& ranks) {
  std::vector<TimelinePoint> points;
  for (const std::string& letters : ranks) {
    const double begin = kBegin + static_cast<double>(points.size());
    points.push_back({begin, begin + 1, static_cast<int64_t>(points.size()), 100, letters});
  }
  return points;
}

TEST(IncidentPage, OfARunToWhichNothingHappened) {
  const std::string html = incident_page({.title = "runs/a"});
  expect_sound(html);
  EXPECT_EQ(count(html, "Nothing happened."), 1);
  EXPECT_EQ(count(html, "started again"), 0);
  expect_sound(incident_page({}));
}

TEST(IncidentPage, ShowsWhatWasLostAndHow) {
  const std::vector<LedgerEntry> entries = {entry_of(1, RunFault::kKilled, 1.25),
                                            entry_of(2, RunFault::kHang, 2.5),
                                            entry_of(4, RunFault::kKilled, 4)};
  const std::vector<TimelinePoint> points = seconds_of({"cc", "cx", "ct", "cc"});
  const std::vector<RailOutage> outages = {{0, "1", "2", kBegin + 1, kBegin + 2}};
  const std::string html = incident_page({.title = "runs/a",
                                          .outcome = "exit 0: done",
                                          .step = 40,
                                          .steps_total = 50,
                                          .entries = entries,
                                          .points = points,
                                          .outages = outages});
  expect_sound(html);
  EXPECT_EQ(count(html, "<b>3</b><span>incidents"), 1);
  EXPECT_EQ(count(html, "<b>7.75 s</b>"), 1);
  EXPECT_EQ(count(html, "<b>40 of 50</b>"), 1);
  EXPECT_EQ(count(html, "exit 0: done"), 1);
  EXPECT_EQ(count(html, "<td>2</td><td>5.25</td>"), 1);  // killed: both
  EXPECT_EQ(count(html, "<td>1</td><td>2.50</td>"), 1);  // hang
  EXPECT_EQ(count(html, "<td>3</td><td>7.75</td>"), 1);  // all by replacement
  EXPECT_LT(html.find("<td>4</td><td>2026-"), html.find("<td>1</td><td>2026-"));  // newest first
  EXPECT_EQ(count(html,
                  "<td>0.500</td><td>0.001</td><td>0.250</td><td>0.125</td><td>0.375</td>"
                  "<td>0.062</td>"),
            4);  // three, and the median
  EXPECT_EQ(count(html, "<td>2.500</td></tr>"),
            3);  // the hang in both tables, and the median of all
  EXPECT_EQ(count(html, ">rank 0</text>"), 1);
  EXPECT_EQ(count(html, ">rank 1</text>"), 1);
  EXPECT_EQ(count(html, ">0 to 1 rail 2</text>"), 1);
}

TEST(IncidentPage, SaysWhatWasUsefulAndWhatWasExpected) {
  const UsefulShare useful = {.watched = 200,
                              .interruptions = 3,
                              .recovery = 1.5,
                              .step_seconds = 0.5,
                              .between_seconds = 0.25,
                              .useful = 0.841};
  const std::string both = incident_page({.useful = useful, .useful_expected = 0.892});
  expect_sound(both);
  EXPECT_EQ(count(both, "<b>84.1 %</b> of 200 s"), 1);
  EXPECT_EQ(count(both, "<b>89.2 %</b> was to be expected of 3 interruptions"), 1);
  const std::string one = incident_page({.useful = useful});
  EXPECT_EQ(count(one, "<b>84.1 %</b> of 200 s"), 1);
  EXPECT_EQ(count(one, "expected"), 0);
  EXPECT_EQ(count(incident_page({}), "steps that count"), 0);
}

TEST(IncidentPage, ForeignTextIsNoHtml) {
  const std::string evil = "<script>alert(1)</script>\"'&\x01\xff";
  LedgerEntry e = entry_of(1, RunFault::kFailed, 1);
  e.evidence = {evil};
  e.decision = evil;
  e.host = evil;
  const std::vector<LedgerEntry> entries = {e};
  const std::vector<RailOutage> outages = {{0, evil, evil, kBegin, -1}};
  const std::vector<TimelinePoint> points = seconds_of({"c", evil});
  const std::string html = incident_page(
      {.title = evil, .outcome = evil, .entries = entries, .points = points, .outages = outages});
  expect_sound(html);
  EXPECT_GE(count(html, "&lt;script&gt;"), 5);
  EXPECT_EQ(count(html, "\xff"), 0);
  EXPECT_EQ(count(html, "\x01"), 0);
}

// A page that nobody can open is none: bytes do not grow with faults, ranks or paths.
TEST(IncidentPage, FiveThousandIncidentsOfAThousandRanksAreOnePage) {
  std::vector<LedgerEntry> entries;
  for (int64_t id = 1; id <= 5000; ++id) {
    entries.push_back(entry_of(id, static_cast<RunFault>(id % 20), 1));
    entries.back().evidence.assign(50, std::string(500, 'e'));
  }
  std::vector<std::string> letters;
  for (size_t s = 0; s < 1000; ++s) {
    letters.emplace_back(1000, 'c');
    letters.back()[s] = 'x';
  }
  std::vector<RailOutage> outages;
  for (int i = 0; i < 1000; ++i) outages.push_back({i, "0", "1", kBegin + i, kBegin + i + 0.5});
  const std::vector<TimelinePoint> points = seconds_of(letters);
  const std::string html =
      incident_page({.title = "runs/a", .entries = entries, .points = points, .outages = outages});
  expect_sound(html);
  EXPECT_LT(html.size(), 2u << 20);
  EXPECT_EQ(count(html, "<b>5000</b><span>incidents"), 1);
  EXPECT_EQ(count(html, "4700 earlier ones"), 1);
  EXPECT_EQ(count(html, "4900 earlier ones"), 1);
  EXPECT_EQ(count(html, ">ranks 0-15</text>"), 1);
  EXPECT_EQ(count(html, "and 44 more"), 300);
}

// A fault of one second in a week of points is a pixel, not nothing.
TEST(IncidentPage, AShortFaultIsDrawn) {
  std::vector<TimelinePoint> points = {{kBegin, kBegin + 600000, 1, 1, "c"},
                                       {kBegin + 600000, kBegin + 600001, 1, 1, "x"},
                                       {kBegin + 600001, kBegin + 604800, 1, 1, "c"}};
  const auto page = [&] { return incident_page({.title = "a", .points = points}); };
  const std::string with = page();
  points[1].ranks = "c";
  EXPECT_EQ(count(with, "fill:#c8323c"), count(page(), "fill:#c8323c") + 1);
}

}  // namespace
}  // namespace moraine
