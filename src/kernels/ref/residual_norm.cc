// ResidualNorm in double, as the formulas say.
#include "kernels/residual_norm.h"

#include <cmath>
#include <vector>

#include "kernels/ref/element.h"

namespace moraine::ref {
namespace {

double get_or(const Tensor& t, int64_t i, double absent) { return t.empty() ? absent : get(t, i); }

void add_all(const Tensor& t, const std::vector<double>& values) {
  if (t.empty()) return;
  for (int64_t i = 0; i < t.count(); ++i) add(t, i, values[static_cast<size_t>(i)]);
}

}  // namespace

void residual_norm_forward(const ResidualNormForward& a) {
  const int64_t T = a.h.dims[0], D = a.h.dims[1];
  const ResidualScale& s = a.scale;
  for (int64_t t = 0; t < T; ++t) {
    double sum = 0;
    for (int64_t d = 0; d < D; ++d) {
      const int64_t i = t * D + d;
      double merged = (get(a.h, i) + get_or(s.h_bias, d, 0)) * get_or(s.h_scale, d, 1);
      if (!a.r.empty()) {
        merged += (get(a.r, i) + get_or(s.r_bias, d, 0)) * get_or(s.r_scale, d, 1);
      }
      set(a.r_out, i, merged);
      sum += get(a.r_out, i) * get(a.r_out, i);
    }
    const double rstd = 1.0 / std::sqrt(sum / static_cast<double>(D) + static_cast<double>(a.eps));
    for (int64_t d = 0; d < D; ++d) {
      set(a.x, t * D + d, get(a.r_out, t * D + d) * rstd * get(a.norm, d));
    }
    set(a.rstd, t, rstd);
  }
}

void residual_norm_backward(const ResidualNormBackward& a) {
  const int64_t T = a.h.dims[0], D = a.h.dims[1];
  const ResidualScale& s = a.scale;
  std::vector<double> dh_bias(D), dh_scale(D), dr_bias(D), dr_scale(D), dnorm(D);
  for (int64_t t = 0; t < T; ++t) {
    const double rstd = get(a.rstd, t);
    double mean = 0;  // over d of dx * norm * xhat
    for (int64_t d = 0; d < D; ++d) {
      const int64_t i = t * D + d;
      mean += get(a.dx, i) * get(a.norm, d) * get(a.r_out, i) * rstd / static_cast<double>(D);
    }
    for (int64_t d = 0; d < D; ++d) {
      const int64_t i = t * D + d;
      const double xhat = get(a.r_out, i) * rstd;
      const double g =
          get_or(a.dr_out, i, 0) + rstd * (get(a.dx, i) * get(a.norm, d) - xhat * mean);
      dnorm[d] += get(a.dx, i) * xhat;
      const double h_scale = get_or(s.h_scale, d, 1);
      dh_bias[d] += g * h_scale;
      dh_scale[d] += g * (get(a.h, i) + get_or(s.h_bias, d, 0));
      set(a.dh, i, g * h_scale);
      if (a.r.empty()) continue;
      const double r_scale = get_or(s.r_scale, d, 1);
      dr_bias[d] += g * r_scale;
      dr_scale[d] += g * (get(a.r, i) + get_or(s.r_bias, d, 0));
      set(a.dr, i, g * r_scale);
    }
  }
  add_all(a.dnorm, dnorm);
  add_all(a.dscale.h_bias, dh_bias);
  add_all(a.dscale.h_scale, dh_scale);
  add_all(a.dscale.r_bias, dr_bias);
  add_all(a.dscale.r_scale, dr_scale);
}

}  // namespace moraine::ref
