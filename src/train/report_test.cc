// Fails if a page is cut, leaks unescaped text, loads something, or a chart of strange data is not
// drawn.
#include "train/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/chart.h"
#include "base/test_page.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

struct Point {
  double x, y;
};

// The points of the first series, in the drawing's own units; y grows downwards.
std::vector<Point> line_points(const std::string& svg) {
  const size_t line = svg.rfind("class=\"line c1\""), begin = svg.find(" d=\"", line) + 4;
  std::string path = svg.substr(begin, svg.find('"', begin) - begin);
  std::replace_if(
      path.begin(), path.end(), [](char c) { return c == 'M' || c == 'L'; }, ' ');
  std::istringstream in(path);
  std::vector<Point> points;
  for (Point p; in >> p.x >> p.y;) points.push_back(p);
  return points;
}

std::vector<StepMetrics> make_run(int64_t n) {
  std::vector<StepMetrics> run;
  for (int64_t s = 1; s <= n; ++s) {
    StepMetrics m;
    const double x = static_cast<double>(s);
    m.step = s, m.steps_total = n, m.tokens_seen = 1000 * s;
    m.loss = 2 + 6 / std::sqrt(x), m.gradient_norm = 0.4, m.lr = 1e-3, m.seconds = 0.5,
    m.tokens_per_s = 2000;
    m.percent_of_peak = 40, m.load_max_over_mean = 1.2, m.load_entropy = 0.99, m.skip_rate = 0;
    if (s % 10 == 0) m.valid_loss = m.loss + 0.1, m.bits_per_byte = 1.1;
    if (s % 5 == 0) m.layer_loads = {{0.5f, 1.5f, 1, 1}, {1, 1, 0, 2}};
    run.push_back(m);
  }
  return run;
}

TEST(Report, AFullRunHasEveryPart) {
  const std::string html = render_report(make_run(300), {.title = "demo",
                                                         .config = "[model]",
                                                         .hardware = "two cores",
                                                         .sample = "In the beginning"});
  expect_sound(html);
  for (const char* part :
       {"Loss", "validation", "Gradient norm", "Learning rate", "Speed", "Share of the machine",
        "Busiest expert", "Load of each expert", "In the beginning", "[model]", "two cores", "300k",
        "2m30s", "step 300 of 300"}) {
    EXPECT_GT(count(html, part), 0) << part;
  }
  EXPECT_EQ(count(html, "<svg"), 10);
  EXPECT_GT(count(html, ">2.00</text>"), 0);  // expert 3 of layer 1
}

TEST(Report, ForeignTextIsEscaped) {
  const std::string evil = "</pre><script>alert('x')</script>\x01 & \"q\"";
  const std::string html =
      render_report(make_run(3), {.title = evil, .config = evil, .hardware = evil, .sample = evil});
  expect_sound(html);
  EXPECT_EQ(count(html, "&lt;script&gt;alert(&#39;x&#39;)"), 5);  // the title stands twice
  EXPECT_EQ(html_escape("a\nb\t\x7f\xc3\xa9"), "a\nb\t\xEF\xBF\xBD\xc3\xa9");
}

TEST(Report, ShortEmptyAndBrokenRuns) {
  expect_sound(render_report({}, {}));
  expect_sound(render_report(make_run(1), {}));
  expect_sound(render_report(make_run(2), {}));
  StepMetrics bare;
  bare.step = 7;
  expect_sound(render_report({bare}, {}));  // not one known number
  std::vector<StepMetrics> run = make_run(200);
  for (size_t i = 50; i < 60; ++i) run[i].loss = NAN;
  run[70].loss = 1e300, run[71].loss = -1e300, run[72].gradient_norm = INFINITY, run[73].lr = 1e99;
  run[149].layer_loads = {{1, 1}};  // another shape than the last
  run[154].layer_loads = {{}, {}};
  run[159].layer_loads = {{1, 1, 1, 1}, {1}};
  run[3].step = int64_t{1} << 52;
  const std::string html = render_report(run, {});
  expect_sound(html);
  EXPECT_GT(count(html, "steps with a loss that is not a number"), 0);
}

TEST(Report, IsWrittenFromTheFile) {
  TempFolder folder;
  FileSystem& fs = posix_file_system();
  const std::string metrics = join_path(folder.path(), "metrics.jsonl"),
                    page = join_path(folder.path(), "report.html");
  write_report(fs, page, metrics,
               {.title = "nothing yet", .config = "", .hardware = "", .sample = ""});
  EXPECT_GT(count(fs.read(page), "No step has been recorded"), 0);
  {
    MetricsWriter writer(fs, metrics, 0);
    for (const StepMetrics& m : make_run(25)) writer.write(m);
  }
  fs.append_to(metrics)->append("{\"step\":26,", 11);
  write_report(fs, page, metrics, {.title = "run", .config = "", .hardware = "", .sample = ""});
  expect_sound(fs.read(page));
  EXPECT_GT(count(fs.read(page), "step 25 of 25"), 0);
}

TEST(ReportChart, LongRunsStaySmallAndKeepTheirPeaks) {
  ChartSeries s = {.name = "x"};
  for (int64_t i = 1; i <= 200000; ++i) {
    s.x.push_back(static_cast<double>(i));
    s.y.push_back(i == 123456 ? 9.0 : 1.0 + 0.001 * static_cast<double>(i % 10));
  }
  const std::string svg = line_chart_svg({.title = "t", .unit = "", .series = {s}});
  EXPECT_LT(svg.size(), 60000u);
  // Of the points drawn, the peak alone stands out: at its place, 800 times as high as the ripple below it.
  const std::vector<Point> points = line_points(svg);
  ASSERT_GT(points.size(), 100u);
  std::vector<Point> by_height = points;
  std::sort(by_height.begin(), by_height.end(), [](Point a, Point b) { return a.y < b.y; });
  const Point peak = by_height[0];
  const double ripple = by_height.back().y - by_height[1].y, height = by_height[1].y - peak.y;
  EXPECT_GT(height, 100 * ripple);
  const double share = (peak.x - points.front().x) / (points.back().x - points.front().x);
  EXPECT_NEAR(share, 123456.0 / 200000, 0.005);
}

TEST(ReportChart, NanBreaksTheLine) {
  const ChartSeries s = {.name = "", .x = {1, 2, 3, 4, 5}, .y = {1, 2, NAN, 2, 1}};
  const std::string svg = line_chart_svg({.title = "t", .unit = "", .series = {s}});
  const size_t path = svg.rfind("class=\"line c1\"");
  const std::string d = svg.substr(path, svg.find("/>", path) - path);
  EXPECT_EQ(count(d, "M"), 2) << d;
  EXPECT_EQ(count(d, "L"), 2) << d;
}

TEST(ReportChart, SmoothingIsAMeanOfNeighbours) {
  const std::vector<double> flat(100, 3.0);
  EXPECT_EQ(smooth(flat, 21), flat);
  std::vector<double> line, with_gap;
  for (int i = 0; i < 100; ++i) line.push_back(i);
  const std::vector<double> smoothed = smooth(line, 21);
  for (size_t i = 0; i < 100; ++i) EXPECT_NEAR(smoothed[i], line[i], 1e-9);  // symmetric
  with_gap = flat;
  with_gap[50] = NAN;
  EXPECT_EQ(smooth(with_gap, 5)[50], 3);
  EXPECT_TRUE(std::isnan(smooth({NAN}, 9)[0]));
  EXPECT_TRUE(smooth({}, 9).empty());
  std::vector<double> step(64, 0.0);
  step[40] = 5;
  EXPECT_DOUBLE_EQ(smooth(step, 5)[42], 1);
  EXPECT_DOUBLE_EQ(smooth(step, 5)[43], 0);
}

TEST(ReportChart, PeakLimitIgnoresTheHighestHundredth) {
  std::vector<double> values(1000, 1.0);
  values[3] = 100;
  EXPECT_DOUBLE_EQ(peak_limit(values), 1.3);
  EXPECT_DOUBLE_EQ(peak_limit({1, 50, NAN}), 50);
  EXPECT_TRUE(std::isnan(peak_limit({})));
}

}  // namespace
}  // namespace moraine
