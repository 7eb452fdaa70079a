// Element: read and write any float tensor element as double, for the reference kernels.
#pragma once

#include "tensor/tensor.h"

namespace moraine::ref {

inline double get(const Tensor& t, int64_t i) {
  switch (t.dtype) {
    case DType::kF64:
      return static_cast<const double*>(t.data)[i];
    case DType::kF32:
      return static_cast<double>(static_cast<const float*>(t.data)[i]);
    case DType::kBF16:
      return static_cast<double>(to_float(static_cast<const BF16*>(t.data)[i]));
    default:
      break;
  }
  MR_CHECK(false, "no float tensor: %s", dtype_name(t.dtype));
  return 0;
}

inline void set(const Tensor& t, int64_t i, double value) {
  switch (t.dtype) {
    case DType::kF64:
      static_cast<double*>(t.data)[i] = value;
      return;
    case DType::kF32:
      static_cast<float*>(t.data)[i] = static_cast<float>(value);
      return;
    case DType::kBF16:
      static_cast<BF16*>(t.data)[i] = to_bf16(static_cast<float>(value));
      return;
    default:
      break;
  }
  MR_CHECK(false, "no float tensor: %s", dtype_name(t.dtype));
}

inline void add(const Tensor& t, int64_t i, double value) { set(t, i, get(t, i) + value); }

}  // namespace moraine::ref
