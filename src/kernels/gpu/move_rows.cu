// MoveRows, device side.
#include "kernels/gpu/device.h"
#include "kernels/gpu/move_rows.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

template <class E>
MR_DEVICE void move_row(const MoveRowsArgs& a) {
  const MovePlace move = load(a.moves + block_x());
  E* const to = static_cast<E*>(a.to) + move.to;
  const E* const from = static_cast<const E*>(a.from) + move.from;
  for (int64_t i = thread(); i < move.count; i += kMoveThreads)
    store(to + i, move.from < 0 ? E{} : load(from + i));
}

MR_KERNEL(move_rows_elements, kMoveThreads, MoveRowsArgs a) {
  if (a.element_bytes == 1) move_row<uint8_t>(a);
  if (a.element_bytes == 2) move_row<uint16_t>(a);
  if (a.element_bytes == 4) move_row<uint32_t>(a);
  if (a.element_bytes == 8) move_row<uint64_t>(a);
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
