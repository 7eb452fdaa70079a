// ContextAttention: attention of one rank's rows over keys and values that are spread over ranks.
//
//   ring        blocks of keys and values go around the ranks; each rank computes its rows' part
//               against the block it has and merges it (attention_part.h). Backward: the blocks go
//               around again, their gradients travel with them and come home.
//   all-gather  every rank has all keys and values of the batch while it needs them. Backward: the
//               same again, then gradients are summed by reduce_scatter.
//
// Keys of another document or out of the window cost no work; their block still goes around.
//
// Of a device, blocks go through the host's pinned memory (parallel/staged_rows.h), and are exchanged there as on the
// CPU. The ring's blocks of keys go on from where they have arrived, so forward waits for the device once in a layer,
// and is two hops ahead of it at most; backward waits once, and once for each hop. The all-gather waits once, backward
// twice.
//
// Types:  q, k, v, o and gradients f32 or bf16 (ring: f64 too, on the reference backend). Parts,
//         their sums and gradients in flight f32 (wide), rounded once at the end.
// Order:  fixed by the mesh and the batch. all-gather: o and lse have the bits of one rank (keys
//         are walked at fixed positions of their document), dq too; dk, dv are summed over ranks in
//         the tree of collectives.h. ring: a row merges parts in the order of the hops: own block,
//         rank - 1, rank - 2, ..., of each block the lower chunk first; dk, dv of a block add rank
//         by rank in the order it travels.
// Memory: T local rows at most, W rows of the whole batch; bytes in docs/context_parallel.md.
// Cost:   ring: (C-1) messages of 2*T*K*d elements forward; backward these again and C of 2*T*K*d
//         f32. all-gather: each rank sends its part to C-1 others; twice, and a reduce_scatter of
//         2*W*K*d f32.
// Errors: kPeerLost (comm/transport.h).
// Source: ring attention, arXiv:2310.01889; zig-zag order and the all-gather form,
//         arXiv:2407.21783, section 3.3.2.
#pragma once

#include <vector>

#include "comm/collectives.h"
#include "comm/communicator.h"
#include "kernels/context.h"
#include "parallel/context_rows.h"
#include "parallel/staged_rows.h"
#include "tensor/arena.h"

namespace moraine {

enum class ContextVariant : uint8_t { kRing, kAllGather };

struct ContextAttentionSizes {
  ContextVariant variant = ContextVariant::kRing;
  int64_t tokens = 0;  // T: rows of any rank, at most
  int64_t rows = 0;    // W: rows of the whole batch, at most
  int64_t ranks = 0;   // C: at most; all-gather only
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  DType dtype = DType::kBF16;
  bool training = false;
};

struct ContextAttentionForward {
  Tensor o;    // [T, H, d] out
  Tensor lse;  // [T, H] wide out
  Tensor q;    // [T, H, d] in
  Tensor k;    // [T, K, d] in: of this rank's rows
  Tensor v;    // [T, K, d] in
  int64_t window;
  float scale;
};

struct ContextAttentionBackward {
  Tensor dq;     // [T, H, d] out
  Tensor dk;     // [T, K, d] out
  Tensor dv;     // [T, K, d] out
  Tensor delta;  // [T, H] wide scratch
  Tensor do_;    // [T, H, d] in
  Tensor o;      // [T, H, d] in
  Tensor lse;    // [T, H] wide in
  Tensor q;      // [T, H, d] in
  Tensor k;      // [T, K, d] in
  Tensor v;      // [T, K, d] in
  int64_t window;
  float scale;
};

class ContextAttention {
 public:
  ContextAttention(Arena& arena, const ContextAttentionSizes& sizes);

  // The batch that follows, and who shares it. `mine` must live until the next call.
  void begin(Communicator& comm, const ContextRows& mine);

  void forward(Context& ctx, const ContextAttentionForward& a);
  void backward(Context& ctx, const ContextAttentionBackward& a);

 private:
  struct Block {  // of one rank's rows
    Tensor k, v;
    Tensor both() const;
  };
  struct Windowed {
    int64_t window;
    std::vector<RingHop> hops;
  };

  const std::vector<RingHop>& hops(int64_t window);
  Block block(const Tensor& buffer, int64_t rows) const;
  void fill_unseen(Context& ctx, const Tensor& lse);
  void ring_forward(Context& ctx, const ContextAttentionForward& a);
  void ring_backward(Context& ctx, const ContextAttentionBackward& a, const Tensor& dq);
  void gather_keys(Context& ctx, const Tensor& k, const Tensor& v);
  void gathered_forward(Context& ctx, const ContextAttentionForward& a);
  void gathered_backward(Context& ctx, const ContextAttentionBackward& a, const Tensor& dq);

  ContextAttentionSizes sizes_;
  Communicator* comm_ = nullptr;
  const ContextRows* mine_ = nullptr;
  std::vector<Windowed> windows_;  // of this batch
  KeyParts gathered_;
  Shares shares_;             // of keys and values of the whole batch
  Tensor keys_[2];            // [2*T*K*d] ring: here, arriving. all-gather: [2*W*K*d], none
  Tensor gradients_[2];       // the same of dk, dv, wide
  Tensor sum_;                // [T, H, d] wide: o, dq; empty if the type is wide
  Tensor o_part_, lse_part_;  // ring: one part
  Tensor reduce_;             // all-gather: u8 scratch of the sum of gradients, the host's
  Tensor unseen_;             // ring of a device: [T*H] -inf, the host's
  StagedRows staged_keys_[2], staged_gradients_[2];  // of a device: keys_, gradients_
};

}  // namespace moraine
