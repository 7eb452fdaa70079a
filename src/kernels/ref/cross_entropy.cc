// CrossEntropy by its formulas, in double.
#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ref/element.h"

namespace moraine::ref {

void cross_entropy(const CrossEntropy& a) {
  const int64_t T = a.logits.dims[0], V = a.logits.dims[1];
  for (int64_t t = 0; t < T; ++t) {
    const int64_t target = a.target.as<int32_t>()[t];
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t v = 0; v < V; ++v) top = std::max(top, get(a.logits, t * V + v));
    for (int64_t v = 0; v < V; ++v) sum += std::exp(get(a.logits, t * V + v) - top);
    const double lse = top + std::log(sum);
    if (!a.lse.empty()) set(a.lse, t, lse);
    set(a.loss, t, target < 0 ? 0 : lse - get(a.logits, t * V + target));
    if (a.dlogits.empty()) continue;
    for (int64_t v = 0; v < V; ++v) {
      const double p = std::exp(get(a.logits, t * V + v) - lse);
      set(a.dlogits, t * V + v, target < 0 ? 0 : p - (v == target ? 1 : 0));
    }
  }
}

}  // namespace moraine::ref
