// Trace: the spans of some steps as a file that chrome://tracing and Perfetto open.
//
// Trace Event Format, as an object: `traceEvents` is a list of complete events ("ph": "X"), one line
// each, and a name for the lane (a process and a thread are the run and a rank). `ts` and `dur` are
// microseconds from the first event, in eighths, so that no reader's rounding makes events overlap
// that do not. `args` has flops and bytes where there are any.
// Source: "Trace Event Format", Google, public document of the Catapult project.
#pragma once

#include <span>
#include <string>

#include "kernels/profile.h"

namespace moraine {

// About 170 bytes each: a file of 17 MB.
constexpr int64_t kTraceEventsMost = 100'000;

std::string trace_text(std::span<const Profile::Event> events, int rank);

}  // namespace moraine
