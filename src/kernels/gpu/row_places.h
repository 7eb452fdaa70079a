// RowPlaces: the places of all rows of a batch, in a GPU's memory.
#pragma once

#include <span>

#include "kernels/gpu/row_place.h"
#include "kernels/gpu/runtime.h"
#include "kernels/halo_rows.h"

namespace moraine::gpu {

struct BatchRows {
  int64_t T;
  Segments segments;  // cover [0, T)
  bool has_halo;
  std::span<const int64_t> halo_row;
};

// A list of the GPU's (Gpu::list): all layers of a pass find the one that the first has made.
const RowPlace* row_places(Gpu& gpu, const BatchRows& rows);

}  // namespace moraine::gpu
