// Seconds to pixels, and runs of one colour to rectangles.
#include "supervisor/timeline_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/chart.h"
#include "base/printable.h"
#include "supervisor/ledger.h"

namespace moraine {
namespace {

constexpr double kWidth = 1292, kLeft = 110, kRight = 14, kTop = 22, kRow = 14, kGap = 2;
constexpr int kColumns = static_cast<int>(kWidth - kLeft - kRight);  // one for a pixel

struct Shade {
  char letter;
  const char* colour;
  const char* name;
};
constexpr Shade kShades[] = {
    {'-', "var(--grid)", "left out"}, {'d', "var(--axis)", "done"},
    {'c', "var(--s3)", "in a step"},  {'o', "#7fb8a0", "validation, samples"},
    {'s', "var(--s1)", "stores"},     {'l', "#8a63c9", "loads"},
    {'m', "#d9a62b", "meets"},        {'t', "var(--s2)", "starts"},
    {'x', "#c8323c", "no process"},
};
constexpr const char* kGone = "#c8323c";

const char* colour_of(char letter) {
  for (const Shade& shade : kShades)
    if (shade.letter == letter) return shade.colour;
  return "var(--grid)";
}

struct Axis {
  double begin = 0, end = 1;
  int column(double time) const {
    const double share = (time - begin) / (end - begin);
    return static_cast<int>(std::clamp(share * kColumns, 0.0, static_cast<double>(kColumns)));
  }
  double x(double time) const { return kLeft + column(time); }
};

std::string rectangle(double x, double y, double width, const char* colour) {
  return fmt::format(
      "<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" style=\"fill:{}\"/>", x,
      y, std::max(1.0, width), kRow - kGap, colour);
}

std::string label(double y, const std::string& text) {
  return fmt::format("<text class=\"tick\" x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"end\">{}</text>",
                     kLeft - 8, y + kRow - kGap - 1, html_escape(text));
}

size_t badness(char letter) { return kRankLetters.find(letter); }  // npos: none of ours

// A letter for each pixel: of all points and ranks that fall on it the worst; a space where nothing is known.
std::string letters_of(const TimelineChart& chart, const Axis& axis, size_t first, size_t last) {
  std::string row(kColumns, ' ');
  for (const TimelinePoint& p : chart.points) {
    char worst = ' ';
    for (size_t r = first; r < std::min(last, p.ranks.size()); ++r) {
      const size_t bad = badness(p.ranks[r]);
      if (bad != std::string::npos && (worst == ' ' || bad > badness(worst))) worst = p.ranks[r];
    }
    if (worst == ' ') continue;
    const int from = std::min(axis.column(p.begin), kColumns - 1);
    const int to = std::max(axis.column(p.end), from + 1);
    for (auto at = row.begin() + from; at != row.begin() + to; ++at)
      if (*at == ' ' || badness(*at) < badness(worst)) *at = worst;
  }
  return row;
}

std::string row_svg(const std::string& letters, double y) {
  std::string svg;
  for (size_t c = 0; c < letters.size();) {
    const size_t end = std::min(letters.find_first_not_of(letters[c], c), letters.size());
    if (letters[c] != ' ')
      svg += rectangle(kLeft + static_cast<double>(c), y, static_cast<double>(end - c),
                       colour_of(letters[c]));
    c = end;
  }
  return svg;
}

std::string rank_rows(const TimelineChart& chart, const Axis& axis, double* y) {
  size_t ranks = 0;
  for (const TimelinePoint& p : chart.points) ranks = std::max(ranks, p.ranks.size());
  const auto most = static_cast<size_t>(TimelineChart::kRowsMost);
  const size_t together = (ranks + most - 1) / most;
  std::string svg;
  for (size_t first = 0; first < ranks; first += together, *y += kRow) {
    const size_t last = std::min(first + together, ranks);
    svg += label(*y, together == 1 ? fmt::format("rank {}", first)
                                   : fmt::format("ranks {}-{}", first, last - 1));
    svg += row_svg(letters_of(chart, axis, first, last), *y);
  }
  return svg;
}

std::string rail_rows(const TimelineChart& chart, const Axis& axis, double* y) {
  std::map<std::string, std::string> rows;  // by name, a letter for each pixel
  for (const RailOutage& o : chart.outages) {
    const double end = o.end < 0 ? axis.end : o.end;
    if (end < axis.begin || o.begin > axis.end) continue;
    const std::string name = printable(fmt::format("{} to {} rail {}", o.rank, o.peer, o.rail), 40);
    if (!rows.contains(name) && rows.size() >= static_cast<size_t>(TimelineChart::kRailRowsMost))
      continue;
    std::string& row = rows.try_emplace(name, std::string(kColumns, ' ')).first->second;
    const int from = std::min(axis.column(o.begin), kColumns - 1);
    const int to = std::max(axis.column(end), from + 1);
    std::fill(row.begin() + from, row.begin() + to, 'x');
  }
  std::string svg;
  for (const auto& [name, row] : rows) {
    svg += label(*y, name);
    svg += rectangle(kLeft, *y, kColumns, "var(--grid)");
    svg += row_svg(row, *y);
    *y += kRow;
  }
  return svg;
}

std::string marks_svg(const TimelineChart& chart, const Axis& axis) {
  std::vector<bool> marked(kColumns + 1, false);
  std::string svg;
  for (const double time : chart.marks) {
    if (time < axis.begin || time > axis.end) continue;
    const auto column = static_cast<size_t>(axis.column(time));
    if (marked[column]) continue;
    marked[column] = true;
    svg += fmt::format("<path d=\"M{0:.0f} {1:.0f}l-3 -6h6z\" style=\"fill:{2}\"/>", axis.x(time),
                       kTop - 2, kGone);
  }
  return svg;
}

std::string times_svg(const Axis& axis, double y) {
  constexpr int kTicks = 5;
  std::string svg;
  for (int i = 0; i <= kTicks; ++i) {
    const double time = axis.begin + (axis.end - axis.begin) * i / kTicks;
    const char* anchor = i == 0 ? "start" : i == kTicks ? "end" : "middle";
    svg += fmt::format(
        "<text class=\"tick\" x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"{}\">{}</text>", axis.x(time),
        y + 14, anchor, html_escape(utc_of(time).substr(5, 14)));  // 01-02T03:04:05
  }
  return svg;
}

}  // namespace

std::string timeline_legend() {
  std::string html = "<p class=\"soft\">";
  for (const Shade& shade : kShades)
    html +=
        fmt::format("<span style=\"color:{}\">&#9632;</span> {} &nbsp; ", shade.colour, shade.name);
  return html + "&#9662; an incident</p>\n";
}

std::string timeline_svg(const TimelineChart& chart) {
  if (chart.points.empty()) return "<p class=\"soft\">Nothing was written down yet.</p>";
  Axis axis{chart.points.front().begin, chart.points.back().end};
  if (axis.end - axis.begin < 1) axis.end = axis.begin + 1;
  double y = kTop;
  std::string rows = rank_rows(chart, axis, &y);
  if (!chart.outages.empty()) y += 6;
  rows += rail_rows(chart, axis, &y);
  return fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\">{}{}{}</svg>\n", kWidth,
                     y + 20, marks_svg(chart, axis), rows, times_svg(axis, y));
}

}  // namespace moraine
