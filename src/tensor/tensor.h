// Tensor: a contiguous, row-major view of memory that somebody else owns.
//
// Passed by value. A slice of the first dimension is a view; anything else is a copy: there are no
// strides. A default Tensor is empty (`data == nullptr`) and stands for an absent optional argument.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"
#include "tensor/dtype.h"

namespace moraine {

struct Tensor {
  static constexpr int kMaxRank = 4;

  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  int64_t dims[kMaxRank] = {0, 0, 0, 0};

  bool empty() const { return data == nullptr; }
  int64_t count() const {  // elements; 1 for a scalar (rank 0)
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[i];
    return n;
  }
  int64_t bytes() const { return count() * dtype_bytes(dtype); }

  // Typed access; the type must be that of dtype.
  template <class E>
  E* as() const;

  // Rows [begin, end) of the first dimension.
  Tensor rows(int64_t begin, int64_t end) const;
  // The same memory with other dims; the count must match.
  Tensor reshaped(std::initializer_list<int64_t> new_dims) const;
};

Tensor make_tensor(void* data, DType dtype, std::initializer_list<int64_t> dims);

std::string shape_text(const Tensor& t);  // "[4, 64]"

// A wrong shape or type is the caller's bug: stops with the argument's name.
void check_shape(const Tensor& t, const char* name, std::initializer_list<int64_t> dims);
void check_dtype(const Tensor& t, const char* name, DType dtype);

template <class E>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<double>() {
  return DType::kF64;
}
template <>
constexpr DType dtype_of<float>() {
  return DType::kF32;
}
template <>
constexpr DType dtype_of<BF16>() {
  return DType::kBF16;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::kI64;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::kI32;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return DType::kU8;
}

template <class E>
E* Tensor::as() const {
  MR_CHECK(dtype == dtype_of<E>(), "tensor is %s", dtype_name(dtype));
  return static_cast<E*>(data);
}

}  // namespace moraine
