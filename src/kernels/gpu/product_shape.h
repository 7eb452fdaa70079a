// ProductShape: how a block of threads shares a product of matrices in bf16; in no bit of a result.
#pragma once

#include <cstdint>

namespace moraine::gpu {

struct ProductShape {
  int rows, columns;  // of the product, that a block has
  int depth;          // terms of the sum in a stage, a multiple of 16
  int stages;         // in shared memory
  int waves_down, waves_across;

  constexpr int waves() const { return waves_down * waves_across; }
};

// 48 KiB of shared memory each, what every target gives without being asked.
constexpr ProductShape kLargeProduct = {128, 128, 32, 3, 2, 2};
constexpr ProductShape kProduct = {64, 64, 64, 3, 2, 2};
constexpr ProductShape kNarrowProduct = {16, 32, 128, 4, 1, 2};  // of few rows: weights go by once

enum class ProductSize : uint8_t { kNarrow, kMiddle, kLarge };
constexpr const ProductShape& product_shape(ProductSize size) {
  if (size == ProductSize::kLarge) return kLargeProduct;
  return size == ProductSize::kNarrow ? kNarrowProduct : kProduct;
}

// Of `groups` products of so many rows in all.
ProductSize product_size(int64_t groups, int64_t rows, int64_t columns);

}  // namespace moraine::gpu
