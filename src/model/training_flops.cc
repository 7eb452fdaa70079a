// TrainingFlops: sums over layers.
#include "model/training_flops.h"

#include "model/parameters.h"

namespace moraine {
namespace {

// Keys that a position sees, its own included, mean over the positions of a sequence.
double mean_keys(int64_t sequence, int64_t window) {
  const double s = static_cast<double>(sequence);
  if (window <= 0 || window >= sequence) return (s + 1) / 2;
  const double w = static_cast<double>(window);
  return (w * (w + 1) / 2 + (s - w) * w) / s;
}

}  // namespace

double training_flops(const ModelConfig& c, int64_t sequence) {
  double keys = 0;
  for (int64_t layer = 0; layer < c.layers; ++layer) keys += mean_keys(sequence, c.window(layer));
  const double weights = static_cast<double>(count_parameters(c).active);
  return 6 * weights + 12 * static_cast<double>(c.heads * c.head_dim) * keys;
}

}  // namespace moraine
