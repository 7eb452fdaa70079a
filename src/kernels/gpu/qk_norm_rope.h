// QkNormRope on a GPU: a block of 64 threads takes a head of a row.
//
// Formulas, shapes and types: kernels/qk_norm_rope.h, forward, both forms; f32 and bf16.
// Order:    thread i adds the squares of channels i, i + 64, ... ascending; then block_sum.h. A key head's mean adds
//           its query heads ascending. The same bits in waves of 32 and 64, on every target.
// Cost:     memory-bound: a head is read twice, from caches. The rotary table is the host's work, once for each base.
#pragma once

#include <cstdint>

namespace moraine {
struct QkNormRopeForward;  // kernels/qk_norm_rope.h
struct RopeTable;
}  // namespace moraine

namespace moraine::gpu {

class Gpu;

constexpr int kHeadThreads = 64;

struct QkNormRopeArgs {
  void* q;                  // [T, H, d] out; f32 or bf16
  void* k;                  // [T, K, d] out; as q
  float* nq;                // [T, H] out, or null: plain form
  float* nk;                // [T, K] out, or null
  const void* qkv;          // [T, N]; as q
  const void* z;            // [H+K, T, d]; as q, or null
  const float* temp;        // [K] or null
  const int32_t* position;  // [T]
  const float* rope;        // [P, half, 2]
  int64_t T, H, K, d, N, half;
};

// Tensors in the memory of `gpu`.
void qk_norm_rope_forward(Gpu& gpu, const QkNormRopeForward& a);
// Made in double by the host, and copied: once for each base, before any pass.
void rope_table(Gpu& gpu, const RopeTable& a);

}  // namespace moraine::gpu
