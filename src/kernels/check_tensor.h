// CheckTensor: argument checks shared by the operations' dispatch files.
#pragma once

#include "tensor/tensor.h"

namespace moraine {

// The type of "wide" tensors (residual, sums, gradients) beside activations of type `activation`: f64 for
// f64 (reference runs), else f32.
inline DType wide_dtype(DType activation) {
  return activation == DType::kF64 ? DType::kF64 : DType::kF32;
}

inline void check_activation(const Tensor& t, const char* name) {
  MR_CHECK(t.dtype == DType::kF32 || t.dtype == DType::kBF16 || t.dtype == DType::kF64, "%s is %s",
           name, dtype_name(t.dtype));
}

// Shape and type at once; an empty tensor passes only if `optional`.
inline void check_tensor(const Tensor& t, const char* name, DType dtype,
                         std::initializer_list<int64_t> dims, bool optional = false) {
  if (optional && t.empty()) return;
  check_dtype(t, name, dtype);
  check_shape(t, name, dims);
}

}  // namespace moraine
