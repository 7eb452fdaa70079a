// Swiglu on a GPU: a thread takes a channel.
//
// Formulas, shapes and types: kernels/swiglu.h; f32 and bf16. sigmoid is ours (exp.h).
// Order:    no sums: the same bits on every target.
#pragma once

#include <cstdint>

namespace moraine {
struct SwigluBackward;  // kernels/swiglu.h
struct SwigluForward;
}  // namespace moraine

namespace moraine::gpu {

class Gpu;

struct SwigluArgs {
  void* y;              // [T, F] out; f32 or bf16
  const void* gate_up;  // [T, 2F]; as y
  const int64_t* last;  // only rows below *last; or null: all
  int64_t rows, F;
};

struct SwigluBackwardArgs {
  void* dgate_up;       // [T, 2F] out; f32 or bf16; may be gate_up
  const void* dy;       // [T, F]; as dgate_up
  const void* gate_up;  // [T, 2F]; as dgate_up
  const int64_t* last;  // only rows below *last; or null: all
  int64_t rows, F;
};

// Tensors in the memory of `gpu`; bounds of `rows`, if it has any, there or in the host's.
void swiglu_forward(Gpu& gpu, const SwigluForward& a);
void swiglu_backward(Gpu& gpu, const SwigluBackward& a);

}  // namespace moraine::gpu
