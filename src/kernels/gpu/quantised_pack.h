// QuantisedPack: where a pack of integers has a weight, for kernels that read one (kernels/quantised.h).
#pragma once

#include "kernels/gpu/device.h"
#include "kernels/gpu/linear_quantised.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

constexpr int kQuantisedFours =
    kQuantisedInputs / 4;  // words of four integers, of a column of a block

// Words of a block in the pack: integers, and behind them scales.
template <bool kQ4>
constexpr int64_t kQuantisedIntegers = kQuantisedFours* kQuantisedColumns / (kQ4 ? 2 : 1);
template <bool kQ4>
constexpr int64_t kQuantisedWords = kQuantisedIntegers<kQ4> + kQuantisedColumns / 2;

MR_DEVICE int64_t quantised_blocks(int64_t k) {
  return (k + kQuantisedInputs - 1) / kQuantisedInputs;
}

// Block `block` of panel `panel`, counted over all groups.
template <bool kQ4>
MR_DEVICE const uint32_t* quantised_block(const void* pack, int64_t k, int64_t panel,
                                          int64_t block) {
  return static_cast<const uint32_t*>(pack) +
         (panel * quantised_blocks(k) + block) * kQuantisedWords<kQ4>;
}

// Inputs [4 four, 4 four + 4) of a column, as signed bytes.
template <bool kQ4>
MR_DEVICE int32_t quantised_four(const uint32_t* block, int four, int column) {
  if constexpr (!kQ4)
    return static_cast<int32_t>(load(block + (four * kQuantisedColumns + column)) ^ 0x80808080u);
  const uint32_t halves = load(block + (four % (kQuantisedFours / 2) * kQuantisedColumns + column));
  const uint32_t bytes = (four < kQuantisedFours / 2 ? halves : halves >> 4) & 0x0f0f0f0fu;
  // Less 8, with 128 added meanwhile: no byte borrows from the next.
  return static_cast<int32_t>((bytes + 0x78787878u) ^ 0x80808080u);
}

template <bool kQ4>
MR_DEVICE float quantised_scale(const uint32_t* block, int column) {
  const void* const scales = block + kQuantisedIntegers<kQ4>;
  return widen(load(static_cast<const BF16*>(scales) + column));
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
