// MoveRows, host side.
#include "kernels/move_rows.h"

#include "kernels/gpu/move_rows.h"
#include "kernels/gpu/runtime.h"

namespace moraine::gpu {

static_assert(sizeof(RowMove) == sizeof(MovePlace), "one is copied as the other");

void move_rows(Gpu& gpu, const MoveRows& a) {
  const void* const moves = gpu.list(a.moves.data(), static_cast<int64_t>(a.moves.size_bytes()));
  const MoveRowsArgs args = {.to = a.to.data,
                             .from = a.from.data,
                             .moves = static_cast<const MovePlace*>(moves),
                             .element_bytes = static_cast<int>(dtype_bytes(a.to.dtype))};
  gpu.launch(
      "move_rows_elements",
      {.blocks_x = static_cast<int64_t>(a.moves.size()), .blocks_y = 1, .threads = kMoveThreads},
      &args);
}

}  // namespace moraine::gpu
