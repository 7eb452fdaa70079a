// Balance: sums counts as exact integers; the gradient is one division of two of them.
#include "optim/balance.h"

#include <cmath>

#include "kernels/check_tensor.h"

namespace moraine {

void balance_step(const BalanceStep& a) {
  const BalanceOptions& o = a.options;
  const int64_t L = a.bias.dims[0], C = a.bias.dims[1], E = o.skip ? C - 1 : C;
  check_tensor(a.bias, "bias", DType::kF32, {L, C});
  check_tensor(a.m, "m", DType::kF32, {L, C});
  check_tensor(a.v, "v", DType::kF32, {L, C});
  check_tensor(a.load, "load", DType::kI64, {L, C});
  MR_CHECK(E >= 1 && a.step >= 1, "E=%ld step=%ld", long(E), long(a.step));
  const double t = static_cast<double>(a.step);
  const double m_correction = 1 / (1 - std::pow(o.beta1, t));
  const double v_correction = 1 / (1 - std::pow(o.beta2, t));
  const double lr = a.step < o.warmup_steps ? a.lr * t / static_cast<double>(o.warmup_steps) : a.lr;
  for (int64_t l = 0; l < L; ++l) {
    const int64_t* load = a.load.as<int64_t>() + l * C;
    int64_t real = 0;
    for (int64_t e = 0; e < E; ++e) real += load[e];
    const int64_t all = o.skip ? real + load[E] : real;
    if (all <= 0) continue;
    for (int64_t e = 0; e < E; ++e) {
      const int64_t i = l * C + e;
      // Below 2^53 for 2^44 tokens a step and 256 experts.
      const double g = static_cast<double>(load[e] * E - real) / static_cast<double>(all * E);
      const double m = o.beta1 * static_cast<double>(a.m.as<float>()[i]) + (1 - o.beta1) * g;
      const double v = o.beta2 * static_cast<double>(a.v.as<float>()[i]) + (1 - o.beta2) * g * g;
      a.m.as<float>()[i] = static_cast<float>(m);
      a.v.as<float>()[i] = static_cast<float>(v);
      const double move = m * m_correction / (std::sqrt(v * v_correction) + o.eps);
      float& b = a.bias.as<float>()[i];
      b = static_cast<float>(static_cast<double>(b) - lr * move);
    }
  }
}

}  // namespace moraine
