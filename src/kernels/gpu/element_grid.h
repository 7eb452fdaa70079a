// ElementGrid: the blocks of a kernel whose threads take an element each.
#pragma once

#include "kernels/gpu/element_threads.h"
#include "kernels/gpu/emulate.h"  // Grid

namespace moraine::gpu {

inline Grid element_grid(int64_t count) {
  return {.blocks_x = (count + kElementThreads - 1) / kElementThreads,
          .blocks_y = 1,
          .threads = kElementThreads};
}

}  // namespace moraine::gpu
