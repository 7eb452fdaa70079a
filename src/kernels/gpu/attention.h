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
// So for bf16 with d up to 128, in kernels for 64 and 128 whose last channels are zeros, q . k and p v on tiles
// (tile.h). f32 and wider heads take a block for each position and head, keys by 64, sums by fused multiply-adds.
//
// Formulas and shapes: kernels/attention.h.
// Types:    q, k, v, o all bf16 or all f32; m, l and sums f32.
// Order:    as above; on tiles sums over k and keys by the generation's rule (matrix_rules.h), sum p by the lanes that
//           hold a row: one result per generation. Else k and keys ascending, sum p by block_sum.h: one result.
// Cost:     keys that no position of the 64 sees are not read; every head reads its keys by itself, those of the next
//           step while this one's are weighed (bf16 on tiles).
#pragma once

#include <cstdint>

namespace moraine {
struct AttentionForward;  // kernels/attention.h
}

namespace moraine::gpu {

class Gpu;

constexpr int kAttentionRows = 64, kAttentionKeys = 32;  // of a block; of a step
constexpr int kAttentionWaves = 4;
constexpr int kAttentionWidestTiles = 128;
constexpr int kAttentionRowThreads =
    64;  // of a block with one position; one key for each at a time
constexpr int kAttentionWidest = 1024;

// 64 positions of a segment, some of which are in the batch.
struct AttentionTile {
  int64_t position;      // the first, a multiple of 64; those in the batch are
  int64_t begin, end;    // [begin, end)
  int64_t row_of_begin;  // in the batch
  int64_t key_begin;     // row of k and v of position 0; with pages, where its list of pages begins
  int64_t keys;          // at positions [0, keys): up to `end`, or to the end of a part
};

struct AttentionArgs {
  void* o;        // [T, H, d] out; f32 or bf16, as q, k, v; of a part (attention_part.h) f32
  float* lse;     // [T, H] out
  const void* q;  // [T, H, d]
  const void* k;  // [R, K, d]
  const void* v;  // [R, K, d]
  const AttentionTile* tiles;
  const int32_t* pages;  // or null
  int64_t page_rows;
  int64_t window, H, K, d;
  float scale;
};

// Tensors in the memory of `gpu`; segments and pages in the host's, one list for all calls of a pass.
void attention_forward(Gpu& gpu, const AttentionForward& a);

}  // namespace moraine::gpu
