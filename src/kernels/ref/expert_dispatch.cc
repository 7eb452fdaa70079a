// ExpertDispatch by its formulas: a counting sort, then sums in double.
#include "kernels/expert_dispatch.h"

#include <algorithm>

#include "kernels/ref/element.h"

namespace moraine::ref {

void dispatch_plan(const DispatchPlan& a) {
  const int64_t choices = a.expert.count(), E = a.rows.dims[0] - 1;
  const int32_t* expert = a.expert.as<int32_t>();
  int64_t *rows = a.rows.as<int64_t>(), *load = a.load.as<int64_t>();
  int32_t *choice_of = a.choice_of.as<int32_t>(), *row_of = a.row_of.as<int32_t>();
  std::fill_n(load, E + 1, 0);
  for (int64_t i = 0; i < choices; ++i) {
    MR_CHECK(expert[i] >= 0 && expert[i] <= E, "expert[%ld] = %d of %ld", long(i), expert[i],
             long(E));
    ++load[expert[i]];
  }
  // rows[e] first counts up from expert e's first row to its end, which is where e + 1 begins.
  rows[0] = 0;
  for (int64_t e = 0; e < E; ++e) rows[e + 1] = rows[e] + load[e];
  const int64_t used = rows[E];
  for (int64_t i = 0; i < choices; ++i) {
    row_of[i] = expert[i] == E ? -1 : static_cast<int32_t>(rows[expert[i]]++);
    if (row_of[i] >= 0) choice_of[row_of[i]] = static_cast<int32_t>(i);
  }
  for (int64_t e = E; e > 0; --e) rows[e] = rows[e - 1];
  rows[0] = 0;
  rows[E] = used;
  std::fill(choice_of + used, choice_of + choices, -1);
}

void dispatch_forward(const DispatchForward& a) {
  const int64_t T = a.x.dims[0], D = a.x.dims[1], n = a.xe.dims[0] / T;
  const int64_t used = a.rows.as<int64_t>()[a.rows.count() - 1];
  for (int64_t row = 0; row < used; ++row) {
    const int64_t t = a.choice_of.as<int32_t>()[row] / n;
    for (int64_t d = 0; d < D; ++d) set(a.xe, row * D + d, get(a.x, t * D + d));
  }
}

void dispatch_backward(const DispatchBackward& a) {
  const int64_t T = a.dx.dims[0], D = a.dx.dims[1], n = a.row_of.dims[1];
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t d = 0; d < D; ++d) {
      double sum = 0;
      for (int64_t j = 0; j < n; ++j) {
        const int64_t row = a.row_of.as<int32_t>()[t * n + j];
        if (row >= 0) sum += get(a.dxe, row * D + d);
      }
      add(a.dx, t * D + d, sum);
    }
  }
}

void combine_forward(const CombineForward& a) {
  const int64_t T = a.h.dims[0], D = a.h.dims[1], n = a.row_of.dims[1];
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t d = 0; d < D; ++d) {
      double sum = 0;
      for (int64_t j = 0; j < n; ++j) {
        const int64_t row = a.row_of.as<int32_t>()[t * n + j];
        if (row >= 0) sum += get(a.gate, t * n + j) * get(a.ye, row * D + d);
        if (row < 0 && a.skip_identity) sum += get(a.gate, t * n + j) * get(a.x, t * D + d);
      }
      set(a.h, t * D + d, sum);
    }
  }
}

void combine_backward(const CombineBackward& a) {
  const int64_t T = a.dh.dims[0], D = a.dh.dims[1], n = a.row_of.dims[1];
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t j = 0; j < n; ++j) {
      const int64_t row = a.row_of.as<int32_t>()[t * n + j];
      const double gate = get(a.gate, t * n + j);
      double dgate = 0;
      for (int64_t d = 0; d < D; ++d) {
        const double dh = get(a.dh, t * D + d);
        if (row >= 0) {
          dgate += dh * get(a.ye, row * D + d);
          set(a.dye, row * D + d, gate * dh);
        } else if (a.skip_identity) {
          dgate += dh * get(a.x, t * D + d);
          add(a.dx, t * D + d, gate * dh);
        }
      }
      set(a.dgate, t * n + j, dgate);
    }
  }
}

}  // namespace moraine::ref
