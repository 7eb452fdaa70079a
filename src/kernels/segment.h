// Segment: a run of rows that belong to one document.
//
// A batch of T rows is a list of segments that cover [0, T) in order. Rows of different segments never
// see each other. `position_begin` is 0 unless earlier rows of the document are in a cache (decoding,
// chunked prefill, the rows of one rank of a context group).
#pragma once

#include <cstdint>
#include <span>

namespace moraine {

struct Segment {
  int64_t row_begin;       // first row in the batch
  int64_t rows;            // > 0
  int64_t position_begin;  // position in its document of the first row
  int64_t key_begin;       // row of k and v that holds position 0 of this document
};

using Segments = std::span<const Segment>;

// Where the keys of a batch's documents lie, if not one behind the other: in pages of `rows` rows
// of k and v. Position j of a segment is then row  page[key_begin + j / rows] * rows + j % rows,
// key_begin counting in the list of pages. An empty list: row key_begin + j.
struct KeyPages {
  std::span<const int32_t> page;
  int64_t rows = 0;  // of a page: a multiple of 16, the keys that attention takes at once

  int64_t row(const Segment& segment, int64_t position) const {
    if (page.empty()) return segment.key_begin + position;
    const int64_t index = segment.key_begin + position / rows;
    return page[static_cast<size_t>(index)] * rows + position % rows;
  }
};

}  // namespace moraine
