// A line for each event.
#include "train/trace.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"

namespace moraine {
namespace {

// Eighths are exact in binary and in three decimal digits. Rounding down keeps the order of times,
// and with it what encloses what.
double microseconds(double seconds) { return std::floor(seconds * 8e6) / 8; }

const char* category(Span span) {
  if (span == Span::kOperation) return "operation";
  return span == Span::kRanks ? "ranks" : "phase";
}

}  // namespace

std::string trace_text(std::span<const Profile::Event> events, int rank) {
  // Lane 0 of process 0 is the idle thread to some readers.
  const int process = 1, lane = rank + 1;
  double first = events.empty() ? 0 : events.front().begin;
  for (const Profile::Event& event : events) first = std::min(first, event.begin);
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  text += json_text(Json{{"name", "thread_name"},
                         {"ph", "M"},
                         {"pid", process},
                         {"tid", lane},
                         {"args", Json{{"name", "rank " + std::to_string(rank)}}}});
  for (const Profile::Event& event : events) {
    const double begin = microseconds(event.begin - first),
                 end = microseconds(event.begin + event.seconds - first);
    Json args = Json::object();
    if (event.flops > 0) args["flops"] = event.flops;
    if (event.bytes > 0) args["bytes"] = event.bytes;
    text += ",\n" + json_text(Json{{"name", event.name},
                                   {"cat", category(event.span)},
                                   {"ph", "X"},
                                   {"ts", begin},
                                   {"dur", end - begin},
                                   {"pid", process},
                                   {"tid", lane},
                                   {"args", args}});
  }
  return text + "\n]}\n";
}

}  // namespace moraine
