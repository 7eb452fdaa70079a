// Limits: the widest shapes whose work fits a worker's scratch; a model beyond them is refused where
// its config is read.
#pragma once

#include <cstdint>

#include "kernels/context.h"

namespace moraine {

// Half of the scratch holds sums over rows (cpu/row_blocks.h), one f32 for each column.
inline constexpr int64_t kSumsBytes = kWorkerScratchBytes / 2;
inline constexpr int64_t kSumColumnsMax = kSumsBytes / int64_t{sizeof(float)};

// Router outputs, the skip class included: four transposed blocks of 16 rows, the widest vector.
inline constexpr int64_t kRouterClassesMax =
    kWorkerScratchBytes / (4 * 16 * int64_t{sizeof(float)});

// Whether a row of G query and key heads of width d fits the other half (struct Rows of
// cpu/qk_norm_rope.cc): about 200,000 channels.
inline constexpr bool heads_fit_scratch(int64_t G, int64_t d) {
  const int64_t floats = 2 * (G * d + 15) + 4 * (G + 15) + d;
  return floats * int64_t{sizeof(float)} <= kWorkerScratchBytes - kSumsBytes;
}

}  // namespace moraine
