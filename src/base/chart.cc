// Data to pixels: a scale for each axis, then a path.
#include "base/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace moraine {
namespace {

constexpr double kWidth = 640, kHeight = 250, kLeft = 52, kRight = 14, kTop = 34, kBottom = 28;
constexpr double kWideWidth = 1292, kWideHeight = 340;

struct Canvas {
  double width = kWidth, height = kHeight;
  double right() const { return width - kRight; }
  double bottom() const { return height - kBottom; }
};

double nan() { return std::numeric_limits<double>::quiet_NaN(); }

struct Scale {
  double low = 0, high = 1, from = 0, to = 1;  // data and pixels
  bool log = false;
  double at(double value) const {
    const double l = log ? std::log(low) : low, h = log ? std::log(high) : high;
    const double v = log ? std::log(std::max(value, low)) : value;
    return from + (v - l) / (h - l) * (to - from);
  }
};

// 1, 2 or 5 times a power of ten, about `count` of them between low and high.
std::vector<double> linear_ticks(double low, double high, int count) {
  const double raw = (high - low) / count, power = std::pow(10, std::floor(std::log10(raw)));
  const double step = raw / power <= 1   ? power
                      : raw / power <= 2 ? 2 * power
                      : raw / power <= 5 ? 5 * power
                                         : 10 * power;
  std::vector<double> ticks;
  for (int64_t i = static_cast<int64_t>(std::ceil(low / step - 1e-9));
       static_cast<double>(i) * step <= high + 1e-9 * step; ++i) {
    ticks.push_back(static_cast<double>(i) * step);
  }
  return ticks;
}

std::vector<double> log_ticks(double low, double high) {
  std::vector<double> ticks;
  const bool few = high / low < 300;
  for (double power = std::pow(10, std::floor(std::log10(low))); power <= high; power *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = power * factor;
      if (tick >= low && tick <= high && (few || factor == 1)) ticks.push_back(tick);
    }
  }
  return ticks;
}

struct Point {
  double x, y;
};

// At most first, lowest, highest and last of each bucket of the horizontal axis, in order.
std::vector<Point> thinned(const ChartSeries& s, const Scale& x) {
  std::vector<Point> points;
  const size_t n = std::min(s.x.size(), s.y.size());
  for (size_t i = 0; i < n;) {
    const auto bucket = [&](size_t k) {
      return static_cast<int64_t>(x.at(s.x[k]) - x.from);  // one per pixel
    };
    size_t end = i + 1, low = i, high = i;
    const bool missing = !std::isfinite(s.y[i]);
    while (end < n && bucket(end) == bucket(i) && !std::isfinite(s.y[end]) == missing) {
      if (s.y[end] < s.y[low]) low = end;
      if (s.y[end] > s.y[high]) high = end;
      ++end;
    }
    size_t order[4] = {i, std::min(low, high), std::max(low, high), end - 1};
    size_t* last = std::unique(order, order + 4);
    for (size_t* k = order; k != last; ++k) points.push_back({s.x[*k], missing ? nan() : s.y[*k]});
    i = end;
  }
  return points;
}

std::string path_text(const std::vector<Point>& points, const Scale& x, const Scale& y) {
  std::string path;
  bool down = false;  // the pen
  for (const Point& p : points) {
    if (std::isnan(p.y)) {
      down = false;
      continue;
    }
    const double height = std::clamp(y.at(p.y), y.to - 4, y.from + 4);
    path += fmt::format("{}{:.1f} {:.1f}", down ? "L" : "M", x.at(p.x), height);
    down = true;
  }
  return path;
}

struct AxisRange {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  bool empty() const { return !(low <= high); }
  void add(double v) {
    if (!(std::abs(v) < 1e100)) return;  // differences stay finite
    low = std::min(low, v);
    high = std::max(high, v);
  }
};

AxisRange y_range(const LineChart& chart) {
  AxisRange range;
  std::vector<double> values;
  for (const ChartSeries& s : chart.series) {
    for (const double v : s.y) range.add(v);
    if (s.faint || chart.series.size() == 1) values.insert(values.end(), s.y.begin(), s.y.end());
  }
  if (chart.cut_peaks && !values.empty()) range.high = std::min(range.high, peak_limit(values));
  if (chart.from_zero) range.low = std::min(range.low, 0.0);
  if (range.empty()) return range;
  double margin = 0.05 * (range.high - range.low);
  if (margin < 1e-9 * std::max(std::abs(range.high), 1e-30))
    margin = std::max(0.1 * std::abs(range.high), 1e-30);
  range.high += margin;
  if (!(chart.from_zero && range.low == 0)) range.low -= margin;
  return range;
}

std::string text_element(double x, double y, const char* anchor, const std::string& text,
                         const char* css = "tick") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>", x,
                     y, anchor, css, html_escape(text));
}

std::string axes(const Canvas& canvas, const Scale& x, const Scale& y) {
  std::string svg;
  for (const double tick : linear_ticks(y.low, y.high, 5)) {
    svg += fmt::format("<path class=\"grid\" d=\"M{} {:.1f}H{}\"/>", kLeft, y.at(tick),
                       canvas.right());
    svg += text_element(kLeft - 7, y.at(tick) + 4, "end",
                        number_text(std::abs(tick) < 1e-9 * y.high ? 0 : tick));
  }
  for (const double tick : x.log ? log_ticks(x.low, x.high) : linear_ticks(x.low, x.high, 6)) {
    if (tick != std::floor(tick)) continue;  // steps are whole
    svg += fmt::format("<path class=\"grid\" d=\"M{:.1f} {}v4\"/>", x.at(tick), canvas.bottom());
    svg += text_element(x.at(tick), canvas.bottom() + 17, "middle", number_text(tick));
  }
  return svg + fmt::format("<path class=\"axis\" d=\"M{} {}H{}\"/>", kLeft, canvas.bottom(),
                           canvas.right());
}

// About what letters take: 14 px bold in a title, 11 px elsewhere.
constexpr double kTitleLetter = 8, kLetter = 6.2, kLegendGap = 38;

// The names of the series, side by side up to the right edge, with their baseline at y.
std::string legend(const Canvas& canvas, const LineChart& chart, double y) {
  std::string svg;
  double x = canvas.right();
  for (size_t i = chart.series.size(); i-- > 0;) {
    const ChartSeries& s = chart.series[i];
    if (s.name.empty()) continue;
    svg += text_element(x, y, "end", s.name);
    x -= kLetter * static_cast<double>(s.name.size()) + 8;
    svg += fmt::format("<path class=\"line{} c{}\" d=\"M{:.1f} {}h-16\"/>", s.faint ? " faint" : "",
                       s.colour, x, y - 4);
    x -= kLegendGap - 8;
  }
  return svg;
}

// The legend has no room beside title and unit.
bool legend_has_its_own_line(const Canvas& canvas, const LineChart& chart) {
  double width = kTitleLetter * static_cast<double>(chart.title.size()) +
                 kLetter * static_cast<double>(chart.unit.size()) + kLegendGap;
  for (const ChartSeries& s : chart.series)
    if (!s.name.empty()) width += kLetter * static_cast<double>(s.name.size()) + kLegendGap;
  return width > canvas.right();
}

std::string open_svg(const Canvas& canvas, const std::string& title, const std::string& unit) {
  std::string svg =
      fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">",
                  canvas.width, canvas.height, html_escape(title));
  svg += fmt::format("<text x=\"6\" y=\"20\" class=\"title\">{}", html_escape(title));
  if (!unit.empty())
    svg += fmt::format("<tspan class=\"tick\" dx=\"7\">{}</tspan>", html_escape(unit));
  return svg + "</text>";
}

std::string empty_chart(const Canvas& canvas, const std::string& title) {
  return open_svg(canvas, title, "") +
         text_element(canvas.width / 2, canvas.height / 2, "middle", "no data") + "</svg>\n";
}

struct Box {
  double x, y, width, height;
};

std::string heat_cell(double value, const Box& box, bool with_number) {
  if (!std::isfinite(value)) return "";
  const bool high = value > 1;
  const double strength = std::min(1.0, std::abs(value - 1));
  std::string svg = fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"var(--{})\" "
      "fill-opacity=\"{:.2f}\"><title>{:.2f}</title></rect>",
      box.x, box.y, box.width, box.height, high ? "high" : "low", 0.85 * strength, value);
  if (with_number) {
    svg += text_element(box.x + box.width / 2, box.y + box.height / 2 + 3.5, "middle",
                        fmt::format("{:.2f}", value), "cell");
  }
  return svg;
}

}  // namespace

std::string line_chart_svg(const LineChart& chart) {
  const Canvas canvas = chart.wide ? Canvas{kWideWidth, kWideHeight} : Canvas{};
  AxisRange x_range;
  for (const ChartSeries& s : chart.series) {
    for (size_t i = 0; i < std::min(s.x.size(), s.y.size()); ++i) {
      if (std::isfinite(s.y[i])) x_range.add(s.x[i]);
    }
  }
  AxisRange ys = y_range(chart);
  if (x_range.empty() || ys.empty()) return empty_chart(canvas, chart.title);
  if (x_range.high <= x_range.low) x_range = {x_range.low - 0.9, x_range.low + 0.9};
  const bool log = chart.log_x && x_range.low > 0;
  const Scale x = {x_range.low, x_range.high, kLeft, canvas.right(), log};
  const double lower = legend_has_its_own_line(canvas, chart) ? 17 : 0;
  const Scale y = {ys.low, ys.high, canvas.bottom(), kTop + lower, false};

  std::string svg = open_svg(canvas, chart.title, chart.unit) + axes(canvas, x, y) +
                    legend(canvas, chart, 20 + lower);
  for (const ChartSeries& s : chart.series) {
    const std::vector<Point> points = thinned(s, x);
    svg += fmt::format("<path class=\"line{} c{}\" d=\"{}\"/>", s.faint ? " faint" : "", s.colour,
                       path_text(points, x, y));
    const bool dots = s.dots || points.size() == 1;
    for (const Point& p : points) {
      if (!dots || std::isnan(p.y)) continue;
      svg += fmt::format(
          "<circle class=\"dot c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>{}: "
          "{}</title></circle>",
          s.colour, x.at(p.x), y.at(p.y), number_text(p.x), number_text(p.y));
    }
  }
  return svg + "</svg>\n";
}

std::string heat_map_svg(const HeatMap& map) {
  const size_t rows = map.values.size(), cols = rows == 0 ? 0 : map.values[0].size();
  if (rows == 0 || cols == 0) return empty_chart({}, map.title);
  const double cell_h = std::clamp(190.0 / static_cast<double>(rows), 5.0, 26.0);
  const double cell_w = (kWidth - kLeft - kRight) / static_cast<double>(cols);
  const double height = kTop + cell_h * static_cast<double>(rows) + 40;
  const bool numbers = map.numbers && cell_w >= 32 && cell_h >= 12;
  const double gap = cell_w > 6 ? 1 : 0;
  std::string svg = open_svg({kWidth, height}, map.title, "");
  const size_t label_every = static_cast<size_t>(std::ceil(13 / cell_h));
  for (size_t r = 0; r < rows; ++r) {
    const double y = kTop + cell_h * static_cast<double>(r);
    if (r % label_every == 0)
      svg += text_element(kLeft - 7, y + cell_h / 2 + 4, "end", std::to_string(r));
    for (size_t c = 0; c < std::min(cols, map.values[r].size()); ++c) {
      const Box box{.x = kLeft + cell_w * static_cast<double>(c),
                    .y = y,
                    .width = cell_w - gap,
                    .height = cell_h - (cell_h > 6 ? 1 : 0)};
      svg += heat_cell(map.values[r][c], box, numbers);
    }
  }
  const double bottom = kTop + cell_h * static_cast<double>(rows);
  const size_t name_every = std::max<size_t>(1, static_cast<size_t>(std::ceil(48 / cell_w)));
  for (size_t c = 0; c < map.x_names.size() && c < cols; c += name_every) {
    svg += text_element(kLeft + cell_w * (static_cast<double>(c) + 0.5), bottom + 15, "middle",
                        map.x_names[c]);
  }
  svg += text_element((kLeft + kWidth - kRight) / 2, bottom + 32, "middle", map.x_label);
  svg += fmt::format(
      "<text transform=\"translate(14 {:.1f}) rotate(-90)\" text-anchor=\"middle\" "
      "class=\"tick\">{}</text>",
      (kTop + bottom) / 2, html_escape(map.y_label));
  return svg + "</svg>\n";
}

std::vector<double> smooth(const std::vector<double>& y, int64_t window) {
  const int64_t n = static_cast<int64_t>(y.size()), half = std::max<int64_t>(0, window / 2);
  std::vector<double> sums(static_cast<size_t>(n + 1), 0), out(y.size(), nan());
  std::vector<int64_t> counts(static_cast<size_t>(n + 1), 0);
  for (int64_t i = 0; i < n; ++i) {
    const size_t k = static_cast<size_t>(i);
    const bool known = std::isfinite(y[k]);
    sums[k + 1] = sums[k] + (known ? y[k] : 0);
    counts[k + 1] = counts[k] + known;
  }
  for (int64_t i = 0; i < n; ++i) {
    // Symmetric, so that the end does not lean; narrow at the start, where a curve bends most.
    const int64_t reach = std::min({half, i / 8, n - 1 - i});
    const size_t begin = static_cast<size_t>(i - reach), end = static_cast<size_t>(i + reach + 1);
    const int64_t count = counts[end] - counts[begin];
    if (count > 0)
      out[static_cast<size_t>(i)] = (sums[end] - sums[begin]) / static_cast<double>(count);
  }
  return out;
}

double peak_limit(std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  if (values.empty()) return nan();
  if (values.size() <= 20) return *std::max_element(values.begin(), values.end());
  const size_t top = values.size() - 1 - values.size() / 100;
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(top), values.end());
  return 1.3 * values[top];
}

std::string html_escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default: {
        const uint8_t byte = static_cast<uint8_t>(c);
        const bool control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
        out += control ? "\xEF\xBF\xBD" : std::string(1, c);  // U+FFFD
      }
    }
  }
  return out;
}

std::string number_text(double value) {
  if (!std::isfinite(value)) return "–";
  const double size = std::abs(value);
  if (size >= 1e15) return fmt::format("{:.3g}", value);
  if (size >= 1e9) return fmt::format("{:.4g}G", value / 1e9);
  if (size >= 1e6) return fmt::format("{:.4g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.4g}k", value / 1e3);
  return fmt::format("{:.4g}", value);
}

}  // namespace moraine
