// RowPlace: how many rows of its segment are before a row, and which row of a halo is before its segment.
#pragma once

#include <cstdint>

namespace moraine::gpu {

struct RowPlace {
  int32_t before;  // rows of the same segment before this one
  int32_t halo;    // row of the halo before the segment; -1: none, and zeros are there
};

}  // namespace moraine::gpu
