// Elementwise by its formulas, in double.
#include "kernels/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/ref/element.h"

namespace moraine::ref {

void zero(const Tensor& y) { std::memset(y.data, 0, static_cast<size_t>(y.bytes())); }

void add_into(const Tensor& y, const Tensor& x) {
  for (int64_t i = 0; i < y.count(); ++i) add(y, i, get(x, i));
}

void scale(const Tensor& y, float factor) {
  for (int64_t i = 0; i < y.count(); ++i) set(y, i, get(y, i) * static_cast<double>(factor));
}

void round_copy(const Tensor& y, const Tensor& x, DType precision) {
  for (int64_t i = 0; i < y.count(); ++i) {
    const double value = get(x, i);
    set(y, i, precision == DType::kBF16 ? double{round_bf16(static_cast<float>(value))} : value);
  }
}

void squares_of_ranges(const SquaresOfRanges& a) {
  for (size_t j = 0; j < a.ranges.size(); ++j) {
    double sum = 0;
    for (int64_t i = a.ranges[j].begin; i < a.ranges[j].end; ++i) sum += get(a.x, i) * get(a.x, i);
    a.sums[j] = sum;
  }
}

bool all_finite(const Tensor& x) {
  for (int64_t i = 0; i < x.count(); ++i) {
    if (!std::isfinite(get(x, i))) return false;
  }
  return true;
}

}  // namespace moraine::ref
