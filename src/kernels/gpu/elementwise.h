// Elementwise on a GPU: a thread takes an element.
//
// Formulas, shapes and types: kernels/elementwise.h: zero, add_into, scale and round_copy; no f64 but for zero.
// Order:    no sums: the same bits on every target.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace moraine {
struct Tensor;  // tensor/tensor.h
}

namespace moraine::gpu {

class Gpu;

struct ZeroArgs {
  void* y;  // [count] out
  int64_t count;
  int element_bytes;  // 1, 2, 4 or 8
};

struct AddIntoArgs {
  float* y;       // [count] added to
  const void* x;  // [count]; f32 or bf16
  int64_t count;
};

struct ScaleArgs {
  void* y;  // [count] in and out; f32 or bf16
  int64_t count;
  float factor;
};

struct RoundCopyArgs {
  void* y;        // [count] out
  const void* x;  // [count]
  int64_t count;
  bool y_bf16, x_bf16;  // else f32
  bool round;           // to bf16
};

// Tensors in the memory of `gpu`.
void zero(Gpu& gpu, const Tensor& y);
void add_into(Gpu& gpu, const Tensor& y, const Tensor& x);
void scale(Gpu& gpu, const Tensor& y, float factor);
void round_copy(Gpu& gpu, const Tensor& y, const Tensor& x, DType precision);

}  // namespace moraine::gpu
