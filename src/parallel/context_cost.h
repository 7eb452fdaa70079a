// ContextCost: which way of sharing attention is faster, from measured numbers.
//
// Times of one layer, forward and backward, on the rank with most work:
//
//   attention   A_f = 4*d*H*P / flops, A_b = 14*d*H*P / flops, P = (row, key) pairs of the rank
//   hop         t(b) = alpha + b / beta: a message of b bytes between neighbours
//   kv, dkv     bytes of a block: 2*T*K*d elements, of the type, and in f32
//   ring        forward   A_f + merge + (C-1) * exposed(t(kv), A_f / C)
//               backward  A_b + (C-1) * exposed(t(kv), A_b / C) + C * t(dkv)
//               merge = 2C passes over 3*T*H*d f32 at `bytes_per_second_memory`
//   all-gather  forward   A_f + (C-1) * t(kv)
//               backward  A_b + (C-1) * t(kv) + reduce_scatter, (C-1) * t(dkv)
//
// exposed(t, a) = max(0, t - a) where the network moves bytes by itself (`overlap`), else t: ranks
// of one host copy with their own cores. Gradients in flight depend on the step before and are
// never hidden. A hop that nobody sees costs its message and no attention.
//
// The all-gather's buffers grow with the whole sequence: where they do not fit, the ring is chosen.
#pragma once

#include <cstdint>

#include "parallel/context_attention.h"

namespace moraine {

struct ContextCost {
  double alpha_seconds = 0;            // of a message
  double bytes_per_second = 0;         // of a large message between two ranks (beta)
  double flops_per_second = 0;         // of attention, of one rank
  double bytes_per_second_memory = 0;  // of a rank's memory
  bool overlap = false;                // messages move while cores compute
  int64_t ranks = 1;                   // C
  int64_t tokens = 0;                  // T: rows of a rank in a batch
  int64_t pairs = 0;                   // P: of the rank that has most
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t element_bytes = 2;
  int64_t most_bytes = 0;  // of all-gather buffers; 0: no limit
};

struct ContextChoice {
  ContextVariant variant = ContextVariant::kAllGather;
  double ring_seconds = 0, all_gather_seconds = 0;  // a layer, forward and backward
  int64_t ring_bytes = 0, all_gather_bytes = 0;     // sent by a rank, a layer, both ways
  int64_t all_gather_buffers = 0;                   // bytes
};

ContextChoice choose_context_variant(const ContextCost& cost);

}  // namespace moraine
