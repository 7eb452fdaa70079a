// Segment: a run of rows that belong to one document.
//
// A batch of T rows is a list of segments that cover [0, T) in order. Rows of different segments never
// see each other. `position_begin` is 0 unless earlier rows of the document are in a cache (decoding,
// chunked prefill, a context-parallel shard).
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

}  // namespace moraine
