// RowPlaces: row by row.
#include "kernels/gpu/row_places.h"

#include <vector>

namespace moraine::gpu {

const RowPlace* row_places(Gpu& gpu, const BatchRows& rows) {
  std::vector<RowPlace> places;
  places.reserve(static_cast<size_t>(rows.T));
  for (size_t s = 0; s < rows.segments.size(); ++s) {
    const int64_t halo = rows.has_halo ? halo_row_of(rows.halo_row, static_cast<int64_t>(s)) : -1;
    for (int64_t t = 0; t < rows.segments[s].rows; ++t)
      places.push_back({static_cast<int32_t>(t), static_cast<int32_t>(halo)});
  }
  return static_cast<const RowPlace*>(
      gpu.list(places.data(), static_cast<int64_t>(places.size() * sizeof(RowPlace))));
}

}  // namespace moraine::gpu
