// Resident: how much memory this process has used at most.
#pragma once

#include <cstdint>

namespace moraine {

// Bytes of the largest resident set so far, as the kernel counts it.
int64_t peak_resident_bytes();

}  // namespace moraine
