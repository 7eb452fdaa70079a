// Clip: the factor that keeps the global gradient norm below a limit.
//
//   norm   = gradient_scale * sqrt(sum of squares)         of all elements, given by the caller
//   factor = gradient_scale * min(1, norm_max / norm)
//
// A norm that is not finite says skip: the step must not be taken.
#pragma once

namespace moraine {

struct Clip {
  double norm = 0;    // of the scaled gradient, before clipping
  double factor = 1;  // what OptimizerStep::gradient_scale wants; 0 if skip
  bool skip = false;
};

// gradient_scale: for example 1 / targets. norm_max <= 0: no limit.
Clip clip_factor(double sum_of_squares, double gradient_scale, double norm_max);

}  // namespace moraine
