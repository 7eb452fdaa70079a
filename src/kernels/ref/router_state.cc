// RouterState in double, as the formulas say.
#include "kernels/router_state.h"

#include <cmath>
#include <vector>

#include "kernels/ref/element.h"

namespace moraine::ref {

void router_state_forward(const RouterStateForward& a) {
  const int64_t T = a.y.dims[0], R = a.y.dims[1];
  for (int64_t t = 0; t < T; ++t) {
    double sum = 0;
    for (int64_t r = 0; r < R; ++r) {
      const int64_t i = t * R + r;
      set(a.s, i, get(a.y, i) + (a.s_prev.empty() ? 0 : get(a.gamma, r) * get(a.s_prev, i)));
      sum += get(a.s, i) * get(a.s, i);
    }
    const double rstd = 1.0 / std::sqrt(sum / static_cast<double>(R) + static_cast<double>(a.eps));
    for (int64_t r = 0; r < R; ++r) {
      set(a.x, t * R + r, get(a.s, t * R + r) * rstd * get(a.norm, r));
    }
    set(a.rstd, t, rstd);
  }
}

void router_state_backward(const RouterStateBackward& a) {
  const int64_t T = a.s.dims[0], R = a.s.dims[1];
  std::vector<double> dgamma(R), dnorm(R);
  for (int64_t t = 0; t < T; ++t) {
    const double rstd = get(a.rstd, t);
    double mean = 0;  // over r of dx * norm * xhat
    for (int64_t r = 0; r < R; ++r) {
      const int64_t i = t * R + r;
      mean += get(a.dx, i) * get(a.norm, r) * get(a.s, i) * rstd / static_cast<double>(R);
    }
    for (int64_t r = 0; r < R; ++r) {
      const int64_t i = t * R + r;
      const double xhat = get(a.s, i) * rstd;
      const double later = a.ds.empty() ? 0 : get(a.ds, i);
      const double g = later + rstd * (get(a.dx, i) * get(a.norm, r) - xhat * mean);
      dnorm[r] += get(a.dx, i) * xhat;
      set(a.dy, i, g);
      if (a.s_prev.empty()) continue;
      dgamma[r] += g * get(a.s_prev, i);
      set(a.ds_prev, i, g * get(a.gamma, r));
    }
  }
  for (int64_t r = 0; r < R; ++r) {
    add(a.dnorm, r, dnorm[r]);
    if (!a.s_prev.empty()) add(a.dgamma, r, dgamma[r]);
  }
}

}  // namespace moraine::ref
