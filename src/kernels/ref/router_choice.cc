// RouterChoice by its formulas, in double.
#include "kernels/router_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/ref/element.h"

namespace moraine::ref {
namespace {

// The class with the largest score that is not taken: NaN below every number, ties to the lower
// index.
int64_t best_class(const std::vector<double>& score, const std::vector<bool>& taken) {
  int64_t best = -1;
  for (int64_t c = 0; c < static_cast<int64_t>(score.size()); ++c) {
    const size_t at = static_cast<size_t>(c), top = static_cast<size_t>(best);
    if (taken[at]) continue;
    if (best < 0 || score[at] > score[top] || (std::isnan(score[top]) && !std::isnan(score[at])))
      best = c;
  }
  return best;
}

}  // namespace

void router_choice_forward(const RouterChoiceForward& a) {
  const int64_t T = a.logits.dims[0], C = a.logits.dims[1], n = a.expert.dims[1];
  int32_t* expert = a.expert.as<int32_t>();
  std::vector<double> score(static_cast<size_t>(C));
  for (int64_t t = 0; t < T; ++t) {
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t c = 0; c < C; ++c) top = std::max(top, get(a.logits, t * C + c));
    for (int64_t c = 0; c < C; ++c) sum += std::exp(get(a.logits, t * C + c) - top);
    for (int64_t c = 0; c < C; ++c) {
      const double prob = std::exp(get(a.logits, t * C + c) - top) / sum;
      set(a.prob, t * C + c, prob);
      score[static_cast<size_t>(c)] = prob + get(a.bias, c);
    }
    std::vector<bool> taken(static_cast<size_t>(C));
    bool skipped = false;
    for (int64_t j = 0; j < n; ++j) {
      const int64_t e = skipped ? a.skip : best_class(score, taken);
      expert[t * n + j] = static_cast<int32_t>(e);
      set(a.gate, t * n + j, skipped ? 0 : get(a.prob, t * C + e));
      taken[static_cast<size_t>(e)] = true;
      skipped = e == a.skip;
    }
  }
}

void router_choice_backward(const RouterChoiceBackward& a) {
  const int64_t T = a.prob.dims[0], C = a.prob.dims[1], n = a.expert.dims[1];
  const int32_t* expert = a.expert.as<int32_t>();
  for (int64_t t = 0; t < T; ++t) {
    std::vector<double> dprob(static_cast<size_t>(C));
    for (int64_t j = 0; j < n; ++j) {
      const int32_t e = expert[t * n + j];
      MR_CHECK(e >= 0 && e < C, "expert[%ld, %ld] = %d of %ld", long(t), long(j), e, long(C));
      dprob[static_cast<size_t>(e)] += get(a.dgate, t * n + j);
      if (e == a.skip) break;  // what follows was forced
    }
    double mean = 0;
    for (int64_t c = 0; c < C; ++c) mean += dprob[static_cast<size_t>(c)] * get(a.prob, t * C + c);
    for (int64_t c = 0; c < C; ++c) {
      set(a.dlogits, t * C + c, get(a.prob, t * C + c) * (dprob[static_cast<size_t>(c)] - mean));
    }
  }
}

}  // namespace moraine::ref
