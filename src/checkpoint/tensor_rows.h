// TensorRows: some rows of a tensor, which together with other ranks' rows are the whole.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace moraine {

// Bytes [offset, offset + bytes) of what is written, for a tensor that is not in memory as a whole. Called for
// pieces one behind the other, by one thread. May throw Error.
using TensorBytes = std::function<void(int64_t offset, int64_t bytes, void* out)>;

// Rows [row_begin, row_begin + rows of `local`) of a tensor of global shape `shape`; a scalar has
// one row.
struct TensorRows {
  std::string name;
  Tensor local;
  std::vector<int64_t> shape;
  int64_t row_begin = 0;
  TensorBytes fill = {};  // if local.data is null
};

}  // namespace moraine
