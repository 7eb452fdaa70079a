// HaloRows: which row of a halo tensor belongs to a segment.
#pragma once

#include <span>

#include "base/check.h"
#include "kernels/segment.h"

namespace moraine {

// -1: the segment has none. An empty list: the segment's own number.
inline int64_t halo_row_of(std::span<const int64_t> halo_row, int64_t segment) {
  return halo_row.empty() ? segment : halo_row[static_cast<size_t>(segment)];
}

// Every segment has a row in [0, count), or -1; without a list there is one row per segment.
inline void check_halo_rows(std::span<const int64_t> halo_row, Segments segments, int64_t count) {
  if (halo_row.empty()) {
    MR_CHECK(count == static_cast<int64_t>(segments.size()), "%ld rows of halo for %zu segments",
             long(count), segments.size());
    return;
  }
  MR_CHECK(halo_row.size() == segments.size(), "%zu halo rows for %zu segments", halo_row.size(),
           segments.size());
  for (const int64_t row : halo_row) {
    MR_CHECK(row >= -1 && row < count, "halo row %ld of %ld", long(row), long(count));
  }
}

}  // namespace moraine
