// Clip: computed in double throughout; the caller decides what a skipped step means.
#include "optim/clip.h"

#include <cmath>

namespace moraine {

Clip clip_factor(double sum_of_squares, double gradient_scale, double norm_max) {
  Clip clip;
  clip.norm = std::sqrt(sum_of_squares) * std::abs(gradient_scale);
  if (!std::isfinite(clip.norm) || !std::isfinite(gradient_scale)) {
    clip.factor = 0;
    clip.skip = true;
    return clip;
  }
  clip.factor = gradient_scale;
  if (norm_max > 0 && clip.norm > norm_max) clip.factor *= norm_max / clip.norm;
  return clip;
}

}  // namespace moraine
