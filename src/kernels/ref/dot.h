// Dot: x[x_begin, d) . y[y_begin, d)
#pragma once

#include "kernels/ref/element.h"

namespace moraine::ref {

inline double dot(const Tensor& x, int64_t x_begin, const Tensor& y, int64_t y_begin, int64_t d) {
  double sum = 0;
  for (int64_t c = 0; c < d; ++c) sum += get(x, x_begin + c) * get(y, y_begin + c);
  return sum;
}

}  // namespace moraine::ref
