// Batch: rows of tokens, which document each belongs to, and where in it they stand.
#pragma once

#include <vector>

#include "kernels/segment.h"
#include "tensor/tensor.h"

namespace moraine {

struct Batch {
  Tensor token;                   // [T] i32
  Tensor position;                // [T] i32, in the document
  std::vector<Segment> segments;  // cover [0, T)

  int64_t tokens() const { return token.dims[0]; }
};

// Sets positions and segments of a batch that needs no cache: documents begin at `segment_begin`
// (ascending, first 0). `token` is filled by the caller.
void set_documents(Batch& batch, const std::vector<int64_t>& segment_begin);

}  // namespace moraine
