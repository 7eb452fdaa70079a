// CcaConvBackward: gradients of CcaConv on a GPU: a thread walks a channel down 64 rows, with its sums.
//
//   sums[b,.]  = of du[t] p[t-1], du[t] p[t], du[t], t over a block's rows, and over -1 of segments that begin there
//   dw[c,0]   += sum_b sums[b,2c] ; dw[c,1] and db[c] likewise                                       row_sums.h
//
// Formulas, shapes and types: kernels/cca_conv.h; f32 and bf16.
// Order:    dp = w1 du + (w0 du_next + what was there), two fused multiply-adds. Sums over t: rows of a block
//           ascending, -1 before the first, then blocks ascending, then what was there. The same bits on every target.
//           A document's dqkv and dhalo do not depend on other documents.
// Cost:     memory-bound: a pair is read three times, from caches. Takes 12 C bytes for each 64 rows.
#pragma once

#include "kernels/gpu/cca_conv.h"

namespace moraine {
struct CcaConvBackward;  // kernels/cca_conv.h
}

namespace moraine::gpu {

constexpr int kConvThreads = 256;

struct CcaConvBackwardArgs {
  void* dqkv;             // [T, N] columns [0, C) added to; f32 or bf16
  float* dhalo;           // [h, 2, C] out, or null
  float* sums;            // [ceil(T / 64), 3 C] scratch: of dw as it lies, then of db
  const void* dpair;      // [G, T, 2*d]; as dqkv
  const void* qkv;        // [T, N]; as dqkv
  const void* halo;       // [h, 2, C]; as dqkv, or null
  const float* w;         // [C, 2]
  const RowPlace* place;  // [T]; its halo is a row of halo and dhalo
  int64_t T, N, C, d;
};

// Tensors in the memory of `gpu`; segments and halo rows in the host's, one list for all calls of a pass.
void cca_conv_backward(Gpu& gpu, const CcaConvBackward& a);

}  // namespace moraine::gpu
