// QuantisedPack: where a pack of integers has a weight, for kernels that read one (kernels/quantised.h).
#pragma once

#include "kernels/gpu/device.h"
#include "kernels/gpu/linear_quantised.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

constexpr int kQuantisedFours =
    kQuantisedInputs / 4;  // words of four integers, of a column of a block

constexpr int kQuantisedRunFours = kQuantisedRun / 4;  // and of a run

// Words of a run, and of a block in the pack: integers, and behind them scales.
template <int kBits>
constexpr int64_t kQuantisedRunWords = kQuantisedRunFours* kQuantisedColumns* kBits / 8;
template <int kBits>
constexpr int64_t kQuantisedIntegers = kQuantisedInputs / kQuantisedRun* kQuantisedRunWords<kBits>;
template <int kBits>
constexpr int64_t kQuantisedWords = kQuantisedIntegers<kBits> + kQuantisedColumns / 2;

MR_DEVICE int64_t quantised_blocks(int64_t k) {
  return (k + kQuantisedInputs - 1) / kQuantisedInputs;
}

// Block `block` of panel `panel`, counted over all groups.
template <int kBits>
MR_DEVICE const uint32_t* quantised_block(const void* pack, int64_t k, int64_t panel,
                                          int64_t block) {
  return static_cast<const uint32_t*>(pack) +
         (panel * quantised_blocks(k) + block) * kQuantisedWords<kBits>;
}

// Inputs [4 four, 4 four + 4) of a column, as signed bytes.
template <int kBits>
MR_DEVICE int32_t quantised_four(const uint32_t* block, int four, int column) {
  if constexpr (kBits == 8)
    return static_cast<int32_t>(load(block + (four * kQuantisedColumns + column)) ^ 0x80808080u);
  const uint32_t* const run = block + four / kQuantisedRunFours * kQuantisedRunWords<kBits>;
  four %= kQuantisedRunFours;
  constexpr int kHalf = kQuantisedRunFours / 2, kQuarter = kQuantisedRunFours / 4;
  const int row = kBits == 4 ? four % kHalf : 3 * (four % kQuarter) + four % kHalf / kQuarter;
  const uint32_t halves = load(run + (row * kQuantisedColumns + column));
  uint32_t bytes = (four < kHalf ? halves : halves >> 4) & 0x0f0f0f0fu;
  if constexpr (kBits == 6) {
    const int high_row = 3 * (four % kQuarter) + 2;
    const uint32_t high = load(run + (high_row * kQuantisedColumns + column));
    bytes |= (high >> four / kQuarter * 2 & 0x03030303u) << 4;
  }
  // Less 8 or 32, with 128 added meanwhile: no byte borrows from the next.
  return static_cast<int32_t>((bytes + (kBits == 6 ? 0x60606060u : 0x78787878u)) ^ 0x80808080u);
}

template <int kBits>
MR_DEVICE float quantised_scale(const uint32_t* block, int column) {
  const void* const scales = block + kQuantisedIntegers<kBits>;
  return widen(load(static_cast<const BF16*>(scales) + column));
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
