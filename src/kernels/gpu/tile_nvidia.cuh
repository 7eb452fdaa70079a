// TileNvidia: multiply_add of tile.h as two mma.m16n8k16, tiles of chunks by ldmatrix, of sm_80 and later.
#pragma once

#include "kernels/gpu/tile.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

using PairWords = Words4;  // two bf16 in each, the first in the lower half

MR_DEVICE void multiply_add(SumTile& c, const LeftTile& a, const RightTile& b) {
  const PairWords left = __builtin_bit_cast(PairWords, a), right = __builtin_bit_cast(PairWords, b);
  MR_UNROLL for (int half = 0; half < 2; ++half) {
    float* const v = c.v + 4 * half;
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(v[0]), "+f"(v[1]), "+f"(v[2]), "+f"(v[3])
        : "r"(left.v[0]), "r"(left.v[1]), "r"(left.v[2]), "r"(left.v[3]), "r"(right.v[2 * half]),
          "r"(right.v[2 * half + 1]));
  }
}

// Four matrices of 8 lines of a chunk: lines 0 to 7 and 8 to 15 of half 0, then of half 1; or, with kByLines, halves 0
// and 1 of the first eight lines, then of the others: so that they come in the order in which mma takes them. A lane
// says where one line begins, and gets of each matrix the two elements 2 (l % 4) of line l / 4; transposed those of
// lines 2 (l % 4) and the next, at l / 4.
template <bool kTransposed, bool kByLines, class At>
MR_DEVICE PairWords load_matrices(const At& at) {
  const auto l = static_cast<unsigned>(lane());
  const SharedChunk place = kByLines ? at(l % 8 + l / 16 * 8, l / 8 % 2) : at(l % 16, l / 16);
  const uint64_t from = place.at;
  PairWords v;
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.v[0]), "=r"(v.v[1]), "=r"(v.v[2]), "=r"(v.v[3])
                 : "l"(from));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.v[0]), "=r"(v.v[1]), "=r"(v.v[2]), "=r"(v.v[3])
                 : "l"(from));
  }
  return v;
}

template <class At>
MR_DEVICE LeftTile left_of_lines(const At& at) {
  return __builtin_bit_cast(LeftTile, (load_matrices<false, false>(at)));
}
template <class At>
MR_DEVICE RightTile right_of_lines(const At& at) {
  return __builtin_bit_cast(RightTile, (load_matrices<false, true>(at)));
}
template <class At>
MR_DEVICE LeftTile left_of_columns(const At& at) {
  return __builtin_bit_cast(LeftTile, (load_matrices<true, true>(at)));
}
template <class At>
MR_DEVICE RightTile right_of_columns(const At& at) {
  return __builtin_bit_cast(RightTile, (load_matrices<true, false>(at)));
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
