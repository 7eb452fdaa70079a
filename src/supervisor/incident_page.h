// IncidentPage: what happened to a run, as one HTML page that needs nothing else.
//
// Ranks over time, paths that were gone, throughput, time lost by cause and by level, incidents with evidence and
// decision, and how long each part of a replacement took. What is drawn is bounded, whatever there is: the sums are
// over all, the page says how many it does not show.
#pragma once

#include <span>
#include <string>

#include "supervisor/ledger.h"
#include "supervisor/run_timeline.h"
#include "supervisor/useful_share.h"

namespace moraine {

struct IncidentPage {
  std::string title = {};
  std::string outcome = {};  // "": the run goes on
  int64_t step = 0, steps_total = 0;
  UsefulShare useful = {};
  double useful_expected = -1;  // by the model of reliability; negative: not known
  std::span<const LedgerEntry> entries = {};
  std::span<const TimelinePoint> points = {};
  std::span<const RailOutage> outages = {};
};

std::string incident_page(const IncidentPage& page);

}  // namespace moraine
