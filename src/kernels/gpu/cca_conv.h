// CcaConv on a GPU: a thread takes a channel of a row, and writes both taps.
//
// Formulas, shapes and types: kernels/cca_conv.h, forward; f32 and bf16.
// Order:    u = w0 p_before + (w1 p + b), two fused multiply-adds: the same bits on every target. A row's bits depend
//           on itself and the two before it.
// Cost:     memory-bound: a row is read three times, from caches.
#pragma once

#include <cstdint>

#include "kernels/gpu/row_place.h"

namespace moraine {
struct CcaConvForward;  // kernels/cca_conv.h
}

namespace moraine::gpu {

class Gpu;

struct CcaConvArgs {
  void* pair;             // [G, T, 2*d] out; f32 or bf16
  const void* qkv;        // [T, N]; as pair
  const void* halo;       // [h, 2, C]; as pair, or null
  const float* w;         // [C, 2]
  const float* b;         // [C]
  const RowPlace* place;  // [T]
  int64_t T, N, C, d;
};

// Tensors in the memory of `gpu`; segments and halo rows in the host's, one list for all calls of a pass.
void cca_conv_forward(Gpu& gpu, const CcaConvForward& a);

}  // namespace moraine::gpu
