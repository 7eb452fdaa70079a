// Gelu in double; erfc keeps the left tail exact where 1 + erf would cancel.
#include "kernels/gelu.h"

#include <cmath>

#include "kernels/ref/element.h"

namespace moraine::ref {
namespace {

constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kDensityAtZero = 0.39894228040143267794;  // 1 / sqrt(2 pi)

double normal_below(double x) { return 0.5 * std::erfc(-x * kSqrtHalf); }

}  // namespace

void gelu_forward(const GeluForward& a) {
  for (int64_t i = 0; i < a.x.count(); ++i) set(a.y, i, get(a.x, i) * normal_below(get(a.x, i)));
}

void gelu_backward(const GeluBackward& a) {
  for (int64_t i = 0; i < a.x.count(); ++i) {
    const double x = get(a.x, i), density = kDensityAtZero * std::exp(-0.5 * x * x);
    set(a.dx, i, get(a.dy, i) * (normal_below(x) + x * density));
  }
}

}  // namespace moraine::ref
