// Quantised weights: a pack of small integers, each block of which has a scale.
//
//   panel    32 columns (n rounded up), as in a plain pack; panels of all columns of a group, then the next group
//   block    64 of k (k rounded up): the weights of a panel's 32 columns, then their 32 bf16 scales
//   q8       32 * 64 weights of 1 byte, 2048 bytes, and 64 bytes of scales
//   q4       32 * 64 weights of half a byte, 1024 bytes, and 64 bytes of scales
//
// What is padded is zero. The bytes are the same on every Isa.
#pragma once

#include <cstdint>

#include "kernels/linear.h"

namespace moraine {

constexpr int64_t kQuantisedPanel = 32;  // columns that stand together
constexpr int64_t kQuantisedBlock = 64;  // inputs that share a scale

// Bytes of a pack of `groups` weights of n x k. A plain format is the caller's bug.
int64_t quantised_bytes(WeightFormat format, int64_t groups, int64_t n, int64_t k);

}  // namespace moraine
