// TimelineChart: ranks and paths over time, as inline SVG text.
//
// A row of colour for each rank; of more than kRowsMost ranks, some share a row, which has the worst of them. Below, a
// row for each path that was gone. Above, a mark for each incident.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "supervisor/run_timeline.h"

namespace moraine {

struct TimelineChart {
  static constexpr int64_t kRowsMost = 64, kRailRowsMost = 32;
  std::span<const TimelinePoint> points;
  std::span<const RailOutage> outages;
  std::vector<double> marks;  // seconds since 1970
};

std::string timeline_svg(const TimelineChart& chart);
std::string timeline_legend();  // HTML

}  // namespace moraine
