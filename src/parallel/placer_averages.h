// PlacerAverages: the integers that those who place experts average and gather, so that all members plan alike.
#pragma once

#include <cstdint>

namespace moraine {

constexpr int64_t kRowUnit = 256;         // of an average row
constexpr int64_t kMemorySums = 4;        // a new sum is one part in so many of an average
constexpr double kNanosecondUnit = 1024;  // of a nanosecond

}  // namespace moraine
