// TensorFloats: where an f32 tensor's elements are on its device; null of one that is absent.
#pragma once

#include "tensor/tensor.h"

namespace moraine::gpu {

inline float* floats_of(const Tensor& t) { return static_cast<float*>(t.data); }

}  // namespace moraine::gpu
