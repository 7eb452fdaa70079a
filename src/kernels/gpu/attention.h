// Attention on a GPU: a block takes one head and 64 positions of one document, each wave 16 of them, keys by 32.
//
//   for each 32 keys, ascending, that any of a wave's 16 positions sees:
//     s      = scale * (q . k), -inf where a position does not see a key
//     m'     = max(m, max s) ;  p = exp(s - m') ;  c = exp(m - m')
//     l      = l c + sum p   ;  o = o c + bf16(p) v ;  m = m'
//   o = o / l ;  lse = m + log l
//
// Positions and keys are cut at multiples of 64, 16 and 32 counted from the document's start, so what is done for a
// position does not depend on which others are in the batch: prefilled whole, in chunks, or alone.
//
// Formulas and shapes: kernels/attention.h. d up to 128, in kernels for 64 and 128 whose last channels are zeros.
// Types:    q, k, v, o bf16; m, l and sums f32; q . k and p v on tiles (tile.h).
// Order:    as above; sums over k and keys by the generation's rule (matrix_rules.h), sum p by the lanes that hold a
//           row. One result per generation.
// Errors:   kInvalidArgument: f32, or d above 128.
// Cost:     keys that no position of the 64 sees are not read; every head reads its keys by itself. Not tuned.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace moraine {
struct AttentionForward;  // kernels/attention.h
}

namespace moraine::gpu {

class Gpu;

constexpr int kAttentionRows = 64, kAttentionKeys = 32;  // of a block; of a step
constexpr int kAttentionWaves = 4;
constexpr int kAttentionWidest = 128;

// 64 positions of a segment, some of which are in the batch.
struct AttentionTile {
  int64_t position;      // the first, a multiple of 64; those in the batch are
  int64_t begin, end;    // [begin, end)
  int64_t row_of_begin;  // in the batch
  int64_t key_begin;     // row of k and v of position 0; with pages, where its list of pages begins
};

struct AttentionArgs {
  BF16* o;        // [T, H, d] out; bf16, as q, k, v
  float* lse;     // [T, H] out
  const BF16* q;  // [T, H, d]
  const BF16* k;  // [R, K, d]
  const BF16* v;  // [R, K, d]
  const AttentionTile* tiles;
  const int32_t* pages;  // or null
  int64_t page_rows;
  int64_t window, H, K, d;
  float scale;
};

// Tensors in the memory of `gpu`; segments and pages in the host's, copied on the way.
void attention_forward(Gpu& gpu, const AttentionForward& a);

}  // namespace moraine::gpu
