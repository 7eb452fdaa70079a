// MoveRows: many short copies at once, between tensors of one type.
//
//   to[move.to + i] = move.from < 0 ? 0 : from[move.from + i]     0 <= i < move.count, for each move
//
// Shapes:   any; places are elements of the flat tensors.
// Types:    any, the same for both.
// Aliasing: `from` may be `to`; no move reads what another writes.
// Order:    moves of one target: undefined on a GPU, the last one elsewhere.
// Cost:     memory-bound; one thread.
#pragma once

#include <span>

#include "kernels/context.h"
#include "tensor/tensor.h"

namespace moraine {

struct RowMove {
  int64_t to, from, count;  // elements; from < 0: zeros
};

struct MoveRows {
  Tensor to;    // out
  Tensor from;  // in
  std::span<const RowMove> moves;
};

void move_rows(Context& ctx, const MoveRows& a);

}  // namespace moraine
