// HaloExchange: what a chunk of a sequence needs of the rows before it, and the gradients back.
//
//   forward   the last two columns of packed q | k (before the convolutions) and the last delayed
//             value of every chunk go to the rank that holds the next chunk
//   backward  their gradients come back, and are added to the rows they belong to
//
// A halo ends where a document begins: columns of another document arrive as zeros, and their
// gradients are dropped. It does not end at a chunk's border.
//
// Zig-zag: chunk i's neighbours are on ranks i-1 and i+1 (the two middle chunks are on one rank),
// so a rank talks to two others, one message each way, for all sequences of the batch.
//
// Of a device, rows at the borders of chunks and the halos are copied out, put together by the host as on the CPU, and
// copied in: each way waits for the device once.
//
// Shapes: T local rows, N = C + 2M columns of qkv, B sequences, halo row 2*b + slot. Without values
//         that are delayed M = 0.
// Types:  qkv and halos: any float type; gradients of the convolution's halo travel wide and are
//         added in f32, so that a row of dqkv is rounded once more.
// Cost:   forward B*(2C+M) elements to each neighbour, backward the same, wide.
// Errors: kPeerLost (comm/transport.h).
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "parallel/context_rows.h"
#include "parallel/staged_rows.h"
#include "tensor/arena.h"

namespace moraine {

struct HaloSizes {
  int64_t sequences = 0;      // B at most
  int64_t columns = 0;        // C
  int64_t values = 0;         // M
  DType dtype = DType::kF32;  // of qkv
};

// By halo row. Forward: of qkv's type. Backward: conv wide, value of qkv's type.
struct HaloTensors {
  Tensor conv;   // [2B, 2, C]
  Tensor value;  // [2B, M]
};

// Whose rows, among whom.
struct HaloPlace {
  Communicator& comm;
  const ContextRows& mine;
};

class HaloExchange {
 public:
  HaloExchange(Arena& arena, const HaloSizes& sizes);

  // Writes all of `out`.
  void forward(Context& ctx, const HaloPlace& at, const HaloTensors& out,
               const Tensor& qkv);  // [T, N] in
  // Adds to columns [0, C) of the last two rows of a chunk, and to columns [C+M, C+2M) of its last.
  void backward(Context& ctx, const HaloPlace& at, const Tensor& dqkv,  // [T, N]
                const HaloTensors& d);

 private:
  Tensor message(const Tensor& buffer, int slot, int64_t sequences, DType dtype) const;
  void swap(Communicator& comm, int64_t rank, int64_t sequences, DType dtype, bool to_next);

  void find_borders(const ContextRows& mine);
  Tensor border(const Tensor& rows, int64_t halo) const;

  HaloSizes sizes_;
  Tensor out_, in_;  // [2 slots, bytes] u8: messages by the slot of the chunk here; the host's
  // Of a device: rows [4B, N], two by halo row; halos; the convolution's gradient.
  StagedRows rows_, conv_, value_, conv_gradient_;
  std::vector<StagedMove> borders_;  // of the rows of the exchange under way
};

}  // namespace moraine
