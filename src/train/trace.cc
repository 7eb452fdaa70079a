// A line for each event.
#include "train/trace.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/json.h"

namespace moraine {
namespace {

// Eighths are exact in binary and in three decimal digits. Rounding down keeps the order of times,
// and with it what encloses what.
double microseconds(double seconds) { return std::floor(std::max(0.0, seconds) * 8e6) / 8; }

const char* category(Span span) {
  if (span == Span::kOperation) return "operation";
  return span == Span::kRanks ? "ranks" : "phase";
}

Json metadata(const char* name, int process, const Json& args) {
  return {{"name", name}, {"ph", "M"}, {"pid", process}, {"args", args}};
}

// `zero`: when the trace begins, by the rank's clock.
std::string event_line(const Profile::Event& event, double zero, int process) {
  const double begin = microseconds(event.begin - zero),
               end = microseconds(event.begin + event.seconds - zero);
  Json args = Json::object();
  if (event.flops > 0) args["flops"] = event.flops;
  if (event.bytes > 0) args["bytes"] = event.bytes;
  return json_text(Json{{"name", event.name},
                        {"cat", category(event.span)},
                        {"ph", "X"},
                        {"ts", begin},
                        {"dur", end - begin},
                        {"pid", process},
                        {"tid", 1},
                        {"args", args}});
}

}  // namespace

int64_t trace_events_of(int rank, int ranks) {
  if (rank >= kTraceRanksMost) return 0;
  return std::min(kTraceEventsMost, kTraceEventsOfAll / std::min(ranks, kTraceRanksMost));
}

std::string trace_text(std::span<const RankTrace> ranks) {
  double first = std::numeric_limits<double>::infinity();
  for (const RankTrace& rank : ranks) {
    for (const Profile::Event& event : rank.events)
      first = std::min(first, event.begin - rank.start);
  }
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  for (const RankTrace& rank : ranks) {
    const int process = rank.rank + 1;  // process 0 is the idle one to some readers
    if (!text.ends_with("[\n")) text += ",\n";
    text += json_text(
        metadata("process_name", process, {{"name", "rank " + std::to_string(rank.rank)}}));
    text += ",\n" + json_text(metadata("process_sort_index", process, {{"sort_index", rank.rank}}));
    for (const Profile::Event& event : rank.events)
      text += ",\n" + event_line(event, first + rank.start, process);
  }
  return text + "\n]}\n";
}

}  // namespace moraine
