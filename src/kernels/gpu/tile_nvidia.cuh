// TileNvidia: multiply_add of tile.h as two mma.m16n8k16 of sm_80 and later.
#pragma once

#include "kernels/gpu/tile.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

struct PairWords {  // two bf16 in each, the first in the lower half
  uint32_t w[4];
};

MR_DEVICE void multiply_add(SumTile& c, const LeftTile& a, const RightTile& b) {
  const PairWords left = __builtin_bit_cast(PairWords, a), right = __builtin_bit_cast(PairWords, b);
  MR_UNROLL for (int half = 0; half < 2; ++half) {
    float* const v = c.v + 4 * half;
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(v[0]), "+f"(v[1]), "+f"(v[2]), "+f"(v[3])
        : "r"(left.w[0]), "r"(left.w[1]), "r"(left.w[2]), "r"(left.w[3]), "r"(right.w[2 * half]),
          "r"(right.w[2 * half + 1]));
  }
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
