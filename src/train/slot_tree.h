// SlotTree: sums the gradients of a step's slots in a fixed binary tree.
//
// Slots are added in order, like one to a binary counter: the buffer of level i holds the sum of
// 2^i neighbouring slots. Whoever sums a whole subtree (one process with all slots, or a rank with
// its share) performs the same additions, so the bits do not depend on who summed what.
//
//   slots 0 1 2 3:  0 to level 0; add 1: (0+1) to level 1; 2 to level 0; add 3: (2+3), then (0+1)+(2+3)
//   slots 0 1 2:    the last one takes what waits: (0+1)+2, as comm/tree_sum.h
//
// Memory: log2(slots), rounded up, + 1 buffers of the parameter count, f32.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/context.h"

namespace moraine {

class SlotTree {
 public:
  SlotTree(Arena& arena, int64_t slots, int64_t count, DType dtype = DType::kF32);

  // Before begin_slot: how many slots follow, at most as many as memory was taken for.
  void set_slots(int64_t slots);
  // A zeroed buffer [count] for the next slot's sum; it stays valid until the slot is closed.
  Tensor begin_slot(Context& ctx);
  // Folds it into the tree: the whole buffer, or range after range and then the count.
  void add(Context& ctx) {
    fold(ctx, 0, current_.count());
    close_slot();
  }
  void fold(Context& ctx, int64_t begin, int64_t end);
  void close_slot();
  // The slot's buffer; that of the last slot is the root to be.
  Tensor current() const { return current_; }
  // After all `slots` were added: the root. Starts over with the next begin_slot.
  Tensor root();

 private:
  int64_t slots_, added_ = 0;   // of this sum
  std::vector<Tensor> levels_;  // levels_[i] holds 2^i slots while bit i of added_ is set
  Tensor current_;
};

// The same tree on a number of each slot.
double slot_tree_sum(std::vector<double> values);

}  // namespace moraine
