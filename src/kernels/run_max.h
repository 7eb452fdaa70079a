// RunMax: of each 64 values of a row the largest.
//
//   largest[r] = max over i in [64 r, min(64 (r + 1), n)) of values[i], of those that are not NaN; -inf if none is
//
// A draw skips the runs of tokens that can not win.
//
// Order:   the largest of two that are equal is either: +0 or -0.
// Threads: any; on the caller's alone.
#pragma once

#include <cstdint>
#include <span>

namespace moraine {

constexpr int64_t kRunLength = 64;

struct RunMax {
  std::span<float> largest;       // [(n + 63) / 64] out
  std::span<const float> values;  // [n]
};

void run_max(const RunMax& a);

}  // namespace moraine
