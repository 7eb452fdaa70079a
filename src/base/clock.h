// Clock: monotonic seconds for rates and deadlines, and the date for files that say when.
#pragma once

#include <string>

namespace moraine {

// Seconds since an arbitrary start; never goes back.
double now_seconds();

// Seconds since 1970, of the date: may go back when that is set.
double unix_seconds();

// 2026-01-02T03:04:05Z
std::string utc_now();

}  // namespace moraine
