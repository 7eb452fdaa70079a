// Chart: line charts with heat maps as inline SVG text.
//
// Colours are CSS variables of the page (chart_page.h: --s1..--s3, --grid, --text, --low, --high), so that one
// drawing reads in light and dark. Any number of points: a line is thinned to what its pixels can
// show, keeping the extremes. NaN breaks a line; nothing to draw gives a chart that says so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moraine {

struct ChartSeries {
  std::string name;
  int colour = 1;      // 1 to 3
  bool faint = false;  // thin and pale: the raw data behind a smoothed line
  bool dots = false;   // few points: marked
  std::vector<double> x = {}, y = {};
};

struct LineChart {
  std::string title, unit;
  std::vector<ChartSeries> series = {};
  bool log_x = false;
  bool from_zero = false;  // the y axis starts at zero
  bool cut_peaks = false;  // the y axis ends at peak_limit(); higher points are drawn at its end
  bool wide = false;       // twice the width of the page
};
std::string line_chart_svg(const LineChart& chart);

// Values around 1, drawn from --low (0) over the background (1) to --high (2 and more).
struct HeatMap {
  std::string title, x_label, y_label;
  std::vector<std::string> x_names = {};         // under some columns
  std::vector<std::vector<double>> values = {};  // [rows][columns]; rows of equal length
  bool numbers = false;                          // write the value into each cell
};
std::string heat_map_svg(const HeatMap& map);

// Mean over a centred window, narrower near both ends; NaN is left out, NaN where nothing is left.
std::vector<double> smooth(const std::vector<double>& y, int64_t window);

// 1.3 times what 99 of 100 values stay below; the highest value if there are few.
double peak_limit(std::vector<double> values);

std::string html_escape(const std::string& text);  // & < > " ' and control characters
std::string number_text(double value);             // four significant digits, "12.9k", "3e-05"

}  // namespace moraine
