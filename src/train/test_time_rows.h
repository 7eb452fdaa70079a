// TestTimeRows: rows of a profile as tests of TimeSplit and WhatBinds make them up.
#pragma once

#include "train/time_split.h"

namespace moraine::testing {

constexpr RankLimits kLimits{.flops_s = 1e9, .bytes_s = 1e8};

inline Profile::Row operation(const char* name, double seconds, double flops, double bytes) {
  return {.name = name,
          .calls = 1,
          .seconds = seconds,
          .seconds_whole = seconds,
          .flops = flops,
          .bytes = bytes};
}

// Of a span that is no operation.
inline Profile::Row other(Span span, const char* name, double seconds, double seconds_whole) {
  return {
      .name = name, .span = span, .calls = 1, .seconds = seconds, .seconds_whole = seconds_whole};
}

}  // namespace moraine::testing
