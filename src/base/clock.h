// Clock: monotonic seconds, for rates and deadlines.
#pragma once

namespace moraine {

// Seconds since an arbitrary start; never goes back.
double now_seconds();

}  // namespace moraine
