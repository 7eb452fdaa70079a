// RowSums, device side.
#include "kernels/gpu/element.h"
#include "kernels/gpu/row_sums.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

MR_KERNEL(row_sums, kElementThreads, RowSumsArgs a) {
  const int64_t i = element();
  if (i >= a.count) return;
  float sum = 0;
  for (int64_t b = 0; b < a.blocks; ++b) sum += load(a.sums + (b * a.stride + i));
  store(a.y + i, load(static_cast<const float*>(a.y) + i) + sum);
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
