// MoveRows on a GPU: a block of threads takes a move.
//
// Formulas, shapes and types: kernels/move_rows.h. A copy: no arithmetic.
// Cost:     the list of moves is one of the GPU's (Gpu::list): equal ones of a pass are copied once.
#pragma once

#include <cstdint>

namespace moraine {
struct MoveRows;  // kernels/move_rows.h
}

namespace moraine::gpu {

class Gpu;

constexpr int kMoveThreads = 256;

// As RowMove.
struct MovePlace {
  int64_t to, from, count;
};

struct MoveRowsArgs {
  void* to;
  const void* from;
  const MovePlace* moves;  // one for each block
  int element_bytes;       // 1, 2, 4 or 8
};

// Tensors in the memory of `gpu`, moves in the host's.
void move_rows(Gpu& gpu, const MoveRows& a);

}  // namespace moraine::gpu
