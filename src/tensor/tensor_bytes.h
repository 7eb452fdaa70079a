// TensorBytes: the memory of a tensor as bytes, for whoever moves or hashes it.
#pragma once

#include <cstddef>
#include <span>

#include "tensor/tensor.h"

namespace moraine {

inline std::span<std::byte> bytes_of(const Tensor& t) {
  return {static_cast<std::byte*>(t.data), static_cast<size_t>(t.bytes())};
}

}  // namespace moraine
