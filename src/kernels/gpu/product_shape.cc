// ProductShape, host side.
#include "kernels/gpu/product_shape.h"

#include "kernels/ceil_div.h"

namespace moraine::gpu {
namespace {

constexpr int64_t kBlocksThatFill = 256;  // a device: two for each multiprocessor of an H100
constexpr int64_t kFewRows = 32;

}  // namespace

ProductSize product_size(int64_t groups, int64_t rows, int64_t columns) {
  const int64_t of_group = ceil_div(rows, groups);
  if (of_group <= kFewRows) return ProductSize::kNarrow;
  const int64_t blocks =
      groups * ceil_div(of_group, kLargeProduct.rows) * ceil_div(columns, kLargeProduct.columns);
  return of_group > kProduct.rows && blocks >= kBlocksThatFill ? ProductSize::kLarge
                                                               : ProductSize::kMiddle;
}

}  // namespace moraine::gpu
