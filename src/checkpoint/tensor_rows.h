// TensorRows: some rows of a tensor, which together with other ranks' rows are the whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace moraine {

// Rows [row_begin, row_begin + rows of `local`) of a tensor of global shape `shape`; a scalar has
// one row.
struct TensorRows {
  std::string name;
  Tensor local;
  std::vector<int64_t> shape;
  int64_t row_begin = 0;
};

}  // namespace moraine
