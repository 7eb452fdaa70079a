// Trace: the spans of some steps as a file that chrome://tracing and Perfetto open.
//
// Trace Event Format, as an object: `traceEvents` is a list of complete events ("ph": "X"), one line
// each, and a process of its own for each rank, by name. `ts` and `dur` are microseconds from the first event of any
// rank, in eighths, so that no reader's rounding makes events overlap that do not. `args` has flops and bytes where
// there are any.
// Source: "Trace Event Format", Google, public document of the Catapult project.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/profile.h"

namespace moraine {

// Of a rank, and of all together, at about 170 bytes each: 17 MB for a rank, 68 for all. Ranks behind the first
// kTraceRanksMost are in no trace.
constexpr int64_t kTraceEventsMost = 100'000, kTraceEventsOfAll = 400'000;
constexpr int kTraceRanksMost = 16;
// Of one of so many ranks.
int64_t trace_events_of(int rank, int ranks);

struct RankTrace {
  int rank = 0;
  double start = 0;  // the same instant on every rank, by its own clock
  std::span<const Profile::Event> events;
};
std::string trace_text(std::span<const RankTrace> ranks);

}  // namespace moraine
