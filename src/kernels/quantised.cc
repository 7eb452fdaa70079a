// Sizes of quantised packs.
#include "kernels/quantised.h"

#include "base/check.h"

namespace moraine {

int64_t quantised_bytes(WeightFormat format, int64_t groups, int64_t n, int64_t k) {
  MR_CHECK(format == WeightFormat::kQ8 || format == WeightFormat::kQ4, "format %d",
           static_cast<int>(format));
  constexpr int64_t kWeights = kQuantisedPanel * kQuantisedBlock, kScales = 2 * kQuantisedPanel;
  const int64_t panels = (n + kQuantisedPanel - 1) / kQuantisedPanel;
  const int64_t blocks = (k + kQuantisedBlock - 1) / kQuantisedBlock;
  const int64_t weight_bytes = format == WeightFormat::kQ8 ? kWeights : kWeights / 2;
  return groups * panels * blocks * (weight_bytes + kScales);
}

}  // namespace moraine
