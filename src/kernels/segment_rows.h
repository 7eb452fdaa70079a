// SegmentRows: which segment a row of the batch belongs to.
#pragma once

#include <algorithm>

#include "base/check.h"
#include "kernels/segment.h"

namespace moraine {

// The segments cover [0, T) in order, without holes.
inline void check_segments(Segments segments, int64_t T) {
  int64_t row = 0;
  for (const Segment& s : segments) {
    MR_CHECK(s.row_begin == row, "segment begins at row %ld, wanted %ld", long(s.row_begin),
             long(row));
    MR_CHECK(s.rows > 0, "segment at row %ld has %ld rows", long(row), long(s.rows));
    MR_CHECK(s.position_begin >= 0, "segment at row %ld begins at position %ld", long(row),
             long(s.position_begin));
    row += s.rows;
  }
  MR_CHECK(row == T, "segments cover %ld of %ld rows", long(row), long(T));
}

// Index of the segment that holds `row`. Cost: log2 of the number of segments.
inline int64_t segment_index(Segments segments, int64_t row) {
  const auto above = std::upper_bound(segments.begin(), segments.end(), row,
                                      [](int64_t r, const Segment& s) { return r < s.row_begin; });
  return above - segments.begin() - 1;
}

}  // namespace moraine
