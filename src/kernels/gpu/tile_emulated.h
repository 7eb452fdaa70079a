// TileEmulated: multiply_add of tile.h on a CPU: lanes hand their cells over, and emulated_tile.cc multiplies.
#pragma once

#include "kernels/gpu/emulated_tile.h"
#include "kernels/gpu/tile.h"
#include "kernels/gpu/tile_cells.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

inline void multiply_add(SumTile& c, const LeftTile& a, const RightTile& b,
                         const SourceLine& at = SourceLine::here()) {
  TileLane mine = {.c = c.v, .a = a.v, .b = b.v};
  meet_wave(kWave == 64 ? &multiply_lanes_cdna : &multiply_lanes_nvidia, &mine, at);
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
