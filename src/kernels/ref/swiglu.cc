// Swiglu by its formulas, in double.
#include "kernels/swiglu.h"

#include <cmath>

#include "kernels/ref/element.h"

namespace moraine::ref {
namespace {

double sigmoid(double v) { return 1 / (1 + std::exp(-v)); }

}  // namespace

void swiglu_forward(const SwigluForward& a) {
  const int64_t F = a.y.dims[1];
  for (int64_t t = 0; t < a.rows; ++t) {
    for (int64_t f = 0; f < F; ++f) {
      const double g = get(a.gate_up, t * 2 * F + f), u = get(a.gate_up, t * 2 * F + F + f);
      set(a.y, t * F + f, g * sigmoid(g) * u);
    }
  }
}

void swiglu_backward(const SwigluBackward& a) {
  const int64_t F = a.dy.dims[1];
  for (int64_t t = 0; t < a.rows; ++t) {
    for (int64_t f = 0; f < F; ++f) {
      const int64_t gate = t * 2 * F + f, up = gate + F;
      const double g = get(a.gate_up, gate), u = get(a.gate_up, up);
      const double dy = get(a.dy, t * F + f), s = sigmoid(g);
      set(a.dgate_up, gate, dy * u * s * (1 + g * (1 - s)));
      set(a.dgate_up, up, dy * g * s);
    }
  }
}

}  // namespace moraine::ref
