// Schedule: the shape that falls from 1 to 0, scaled into [floor, 1], after a linear warm-up.
#include "optim/schedule.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace moraine {
namespace {

// Share of [first, last) done at `position`, in [0, 1].
double progress(double position, double first, double last) {
  if (position >= last) return 1;
  return position <= first ? 0 : (position - first) / (last - first);
}

double shape_value(const Schedule& s, double begin) {
  const double warmup = static_cast<double>(s.warmup), total = static_cast<double>(s.total);
  const double p = progress(begin, warmup, total);
  switch (s.shape) {
    case Schedule::Shape::kConstant:
      return 1;
    case Schedule::Shape::kLinear:
      return 1 - p;
    case Schedule::Shape::kCosine:
      return 0.5 * (1 + std::cos(M_PI * p));
    case Schedule::Shape::kWsd:
      break;
  }
  const double q = progress(begin, std::max(warmup, total - s.decay_fraction * total), total);
  return s.decay == Schedule::Decay::kLinear ? 1 - q : 1 - std::sqrt(q);
}

}  // namespace

double lr_multiplier(const Schedule& s, int64_t begin, int64_t end) {
  MR_CHECK(begin >= 0 && begin < end, "begin=%ld end=%ld", long(begin), long(end));
  if (end < s.warmup) return static_cast<double>(end) / static_cast<double>(s.warmup);
  const double shape = std::clamp(shape_value(s, static_cast<double>(begin)), 0.0, 1.0);
  return s.floor + (1 - s.floor) * shape;
}

}  // namespace moraine
