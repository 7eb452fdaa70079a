// EmulatedTile: the matrix units, cell by cell: which lane holds it, then the rule of rounding of current_emulation().
//
// Written from the manuals a second time and the other way round, from cells to lanes: tile.h maps lanes to cells. What
// both misread alike is not found.
#pragma once

#include "tensor/dtype.h"

namespace moraine::gpu {

// What a lane gives: its cells of three tiles.
struct TileLane {
  float* c;  // added to
  const BF16 *a, *b;
};

// lanes: TileLane of each.
void multiply_lanes_cdna(void** lanes, int count);    // 64 lanes with 4 cells
void multiply_lanes_nvidia(void** lanes, int count);  // 32 lanes with 8 cells

}  // namespace moraine::gpu
