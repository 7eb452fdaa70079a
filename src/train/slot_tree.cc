// SlotTree: adds as a binary counter carries, with one buffer for each digit.
#include "train/slot_tree.h"

#include "kernels/elementwise.h"

namespace moraine {

SlotTree::SlotTree(Arena& arena, int64_t slots, int64_t count, DType dtype) : slots_(slots) {
  MR_CHECK(slots > 0, "slots=%ld", long(slots));
  int64_t size = 1;
  for (; size < slots; size *= 2) {
    levels_.push_back(arena.take("gradients.level" + std::to_string(levels_.size()), "gradients",
                                 dtype, {count}));
  }
  current_ = arena.take("gradients.slot", "gradients", dtype, {count});
}

void SlotTree::set_slots(int64_t slots) {
  MR_CHECK(slots > 0 && slots <= int64_t{1} << levels_.size(), "slots=%ld with %zu levels",
           long(slots), levels_.size());
  MR_CHECK(added_ == 0 || added_ == slots_, "%ld of %ld slots", long(added_), long(slots_));
  slots_ = slots;
  added_ = 0;
}

Tensor SlotTree::begin_slot(Context& ctx) {
  if (added_ == slots_) added_ = 0;
  zero(ctx, current_);
  return current_;
}

// Carry: left neighbour + this one, for every set bit from below. Addition commutes to the bit. The last slot takes
// all: what waits has no other neighbour to come.
void SlotTree::fold(Context& ctx, int64_t begin, int64_t end) {
  const Tensor part = current_.rows(begin, end);
  const bool is_last = added_ + 1 == slots_;
  for (size_t level = 0; level < levels_.size(); ++level) {
    if ((added_ >> level & 1) != 0)
      add_into(ctx, part, levels_[level].rows(begin, end));
    else if (!is_last)
      break;
  }
}

void SlotTree::close_slot() {
  size_t level = 0;
  while ((added_ >> level & 1) != 0) ++level;
  ++added_;
  if (added_ < slots_) std::swap(current_, levels_[level]);
}

Tensor SlotTree::root() {
  MR_CHECK(added_ == slots_, "%ld of %ld slots", long(added_), long(slots_));
  return current_;
}

double slot_tree_sum(std::vector<double> values) {
  for (size_t stride = 1; stride < values.size(); stride *= 2) {
    for (size_t i = 0; i + stride < values.size(); i += 2 * stride) values[i] += values[i + stride];
  }
  return values.empty() ? 0 : values[0];
}

}  // namespace moraine
