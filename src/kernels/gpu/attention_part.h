// AttentionPart on a GPU: attention over a part of the keys, parts that become the whole, and gradients of parts.
//
// Forward and gradients are attention.h's and attention_backward.h's kernels, compiled once more: keys end where the
// part does, outputs are f32, and gradients are added to what is there. Positions are counted from the part's first
// key, and cut there at the same multiples; those that meet a key are met by 32 from the segment's first on, if it does
// not see that key's 64 from their beginning.
//
// Formulas and shapes: kernels/attention_part.h.
// Types:    q, k, v, do all bf16 or all f32; o of a part, lse, delta and gradients f32.
// Order:    a row's bits depend on its part and on nothing else. dk and dv of one key row: segments in order, which is
//           the order of launches where their keys overlap; then as attention_backward.h. On tiles by the generation's
//           rule: one result per generation; merging, f32 and wide heads: one result.
// Cost:     as attention.h's; merging a block of 64 threads for each row and head, memory-bound.
#pragma once

#include <cstdint>

namespace moraine {
struct AttentionPartForward;   // kernels/attention_part.h
struct AttentionMerge;         // likewise
struct AttentionPartBackward;  // likewise
}  // namespace moraine

namespace moraine::gpu {

class Gpu;

constexpr int kMergeThreads = 64;  // of a block with one row of one head

struct AttentionMergeArgs {
  float* o;               // [T, H, d] in and out
  float* lse;             // [T, H] in and out
  const float* o_part;    // [T, H, d]
  const float* lse_part;  // [T, H]
  const int64_t* rows;    // of the segments; a block_x() each
  int64_t H, d;
};

// Tensors in the memory of `gpu`; segments, keys and pages in the host's.
void attention_part_forward(Gpu& gpu, const AttentionPartForward& a);
void attention_merge(Gpu& gpu, const AttentionMerge& a);
void attention_part_backward(Gpu& gpu, const AttentionPartBackward& a);

}  // namespace moraine::gpu
