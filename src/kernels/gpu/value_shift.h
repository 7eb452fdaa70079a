// ValueShift on a GPU: a thread takes a channel of a row.
//
// Formulas, shapes and types: kernels/value_shift.h; f32 and bf16. A copy: no arithmetic.
#pragma once

#include <cstdint>

#include "kernels/gpu/row_place.h"

namespace moraine {
struct ValueShiftBackward;  // kernels/value_shift.h
struct ValueShiftForward;
}  // namespace moraine

namespace moraine::gpu {

class Gpu;

struct ValueShiftArgs {
  void* v;                // [T, width] out; f32 or bf16
  const void* qkv;        // [T, N]; as v
  const void* halo;       // [h, width / 2]; as v, or null
  const RowPlace* place;  // [T]
  int64_t T, N, width;
  int64_t plain;  // channels [0, plain) are of the row itself, the rest of the one before
};

struct ValueShiftBackwardArgs {
  void* dqkv;             // [T, N] columns [N - width, N) out; f32 or bf16
  void* dhalo;            // [h, width / 2] out; as dqkv, or null
  const void* dv;         // [T, width]; as dqkv
  const RowPlace* place;  // [T]
  int64_t T, N, width;
  int64_t plain;
};

// Tensors in the memory of `gpu`; segments and halo rows in the host's, one list for all calls of a pass.
void value_shift_forward(Gpu& gpu, const ValueShiftForward& a);
void value_shift_backward(Gpu& gpu, const ValueShiftBackward& a);

}  // namespace moraine::gpu
