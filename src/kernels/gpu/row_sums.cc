// RowSums, host side: a thread for each sum.
#include "kernels/gpu/row_sums.h"

#include "kernels/gpu/element_grid.h"
#include "kernels/gpu/runtime.h"

namespace moraine::gpu {

void add_row_sums(Gpu& gpu, const RowSumsArgs& a) {
  if (a.count > 0) gpu.launch("row_sums", element_grid(a.count), &a);
}

}  // namespace moraine::gpu
