// Report: a run as one HTML page that needs nothing else: curves, expert balance, final numbers, a
// sample.
//
// Made from metrics.jsonl, which may be short, have gaps or NaN. The page loads nothing from
// anywhere, reads in light and dark, and holds every foreign text escaped.
#pragma once

#include <string>
#include <vector>

#include "base/file_system.h"
#include "train/metrics.h"

namespace moraine {

struct ReportText {
  std::string title;     // name of the run
  std::string config;    // the effective config, as text; empty: left out
  std::string hardware;  // one or a few lines
  std::string sample;    // what the model wrote
};

std::string render_report(const std::vector<StepMetrics>& metrics, const ReportText& text);

// Reads `metrics_path` (an absent file is an empty run) and writes `path` in one piece. Errors:
// kIo.
void write_report(FileSystem& fs, const std::string& path, const std::string& metrics_path,
                  const ReportText& text);

}  // namespace moraine
