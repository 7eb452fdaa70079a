// TestAdamW: buffers for a few ranges of AdamW, and its formulas one element at a time.
#pragma once

#include <cmath>

#include "optim/adamw.h"
#include "testing/rig.h"

namespace moraine::testing {

struct AdamWBuffers {
  Tensor w, m, v, g;
};

// N weights and gradients, S elements of state.
inline AdamWBuffers adamw_buffers(Rig& rig, int64_t N, int64_t S) {
  return {rig.normal({N}, DType::kF32, 1), rig.zeros({S}, DType::kF32), rig.zeros({S}, DType::kF32),
          rig.normal({N}, DType::kF32, 2)};
}

inline AdamWBuffers in_double(Rig& rig, const AdamWBuffers& b) {
  return {rig.copy_as(b.w, DType::kF64), rig.copy_as(b.m, DType::kF64),
          rig.copy_as(b.v, DType::kF64), rig.copy_as(b.g, DType::kF64)};
}

// Step t of adamw.h on buffers in double, at rate lr with gradients scaled by 1/2.
inline void adamw_formulas(const AdamWBuffers& b, const AdamWRange& range, int64_t t,
                           const AdamWOptions& o, double lr) {
  for (int64_t i = 0; i < range.count; ++i) {
    const double g = 0.5 * b.g.as<double>()[range.offset + i];
    double &m = b.m.as<double>()[range.state_offset + i],
           &v = b.v.as<double>()[range.state_offset + i];
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(o.beta1, double(t))),
                 v_hat = v / (1 - std::pow(o.beta2, double(t)));
    const double rate = lr * range.lr_scale;
    double& w = b.w.as<double>()[range.offset + i];
    w = w * (1 - rate * (range.weight_decay ? o.weight_decay : 0)) -
        rate * m_hat / (std::sqrt(v_hat) + o.eps);
  }
}

}  // namespace moraine::testing
