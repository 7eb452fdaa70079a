// ChartPage: fails if text of others reaches the page as HTML, or a chart is lost.
#include "base/chart_page.h"

#include "base/test_page.h"

namespace moraine {
namespace {

using namespace testing;

TEST(ChartPage, HoldsTextEscapedAndEveryChart) {
  const LineChart chart{
      .title = "first", .unit = "ms", .series = {{.name = "x", .x = {1, 2}, .y = {1, 2}}}},
      other{.title = "second", .unit = "ms"};
  const std::string html =
      chart_page({.title = "a <b> title",
                  .subtitle = "of \"run & rest\".toml",
                  .body = chart_cards({chart, other}) + page_card("<pre></pre>")});
  expect_sound(html);
  EXPECT_EQ(count(html, "a &lt;b&gt; title"), 2);  // of the window, and above the text
  EXPECT_EQ(count(html, "of &quot;run &amp; rest&quot;.toml"), 1);
  EXPECT_EQ(count(html, "class=\"card"), 3);
  EXPECT_EQ(count(html, "<svg"), 2);
  EXPECT_LT(html.find("first"), html.find("second"));
  EXPECT_GT(count(html, "var(--s1)"), 0);  // what drawings are coloured by
  expect_sound(chart_page({}));
}

TEST(ChartPage, ALegendThatHasNoRoomBesideTheTitleGoesBelow) {
  LineChart chart{
      .title = "Loss", .unit = "nat", .series = {{.name = "all of it", .x = {1, 2}, .y = {1, 2}}}};
  const char* beside = "y=\"20.0\" text-anchor=\"end\" class=\"tick\">all of it<";
  EXPECT_EQ(count(line_chart_svg(chart), beside), 1);
  chart.title =
      "Where the time of the best mesh goes, of those that were tried, by number of ranks";
  EXPECT_EQ(count(line_chart_svg(chart), beside), 0);
  EXPECT_EQ(count(line_chart_svg(chart), ">all of it<"), 1);
}

}  // namespace
}  // namespace moraine
