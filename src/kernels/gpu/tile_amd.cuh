// TileAmd: multiply_add of tile.h as one v_mfma_f32_16x16x16_bf16 of CDNA2 and CDNA3.
#pragma once

#include "kernels/gpu/tile.h"
#include "kernels/gpu/tile_cells.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

MR_DEVICE void multiply_add(SumTile& c, const LeftTile& a, const RightTile& b) {
  using Shorts = __attribute__((ext_vector_type(4))) short;
  using Floats = __attribute__((ext_vector_type(4))) float;
  c = __builtin_bit_cast(SumTile, __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(
                                      __builtin_bit_cast(Shorts, a), __builtin_bit_cast(Shorts, b),
                                      __builtin_bit_cast(Floats, c), 0, 0, 0));
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
