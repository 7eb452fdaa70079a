// FitOperations: normal equations of two unknowns, with the borders where one of them is zero.
#include "plan/fit_operations.h"

#include <algorithm>

namespace moraine {
namespace {

// By how much the error must fall for a call time to count: what two samples can not tell apart is all factor.
constexpr double kBetter = 0.9, kNoise = 1e-9;

struct Fit {
  double call = 0, factor = 0;
};

double error_of(const std::vector<OperationSample>& samples, const Fit& fit) {
  double sum = 0;
  for (const OperationSample& s : samples) {
    const double off = (s.calls * fit.call + s.base_seconds * fit.factor) / s.seconds - 1;
    sum += off * off;
  }
  return sum;
}

// With factor = least + extra: two unknowns, call and extra, both at least 0.
Fit fit_one(const std::vector<OperationSample>& samples) {
  const double least = samples.front().least_factor;
  double cc = 0, cb = 0, bb = 0, c = 0, b = 0;
  for (const OperationSample& s : samples) {
    const double calls = s.calls / s.seconds, base = s.base_seconds / s.seconds,
                 target = 1 - least * base;
    cc += calls * calls, cb += calls * base, bb += base * base;
    c += calls * target, b += base * target;
  }
  const auto at_least = [](double value) { return std::max(0.0, value); };
  Fit best = bb > 0 ? Fit{0, least + at_least(b / bb)} : Fit{cc > 0 ? at_least(c / cc) : 0, 0};
  const auto try_fit = [&](double call, double extra) {
    const Fit fit{call, least + extra};
    if (call < 0 || extra < 0) return;
    if (error_of(samples, fit) < kBetter * error_of(samples, best) - kNoise) best = fit;
  };
  if (cc > 0 && bb > 0) try_fit(c / cc, 0);
  const double det = cc * bb - cb * cb;
  if (det > 1e-9 * cc * bb) try_fit((c * bb - b * cb) / det, (b * cc - c * cb) / det);
  return best;
}

}  // namespace

std::vector<OperationFit> fit_operations(const std::vector<OperationSample>& samples, bool bf16,
                                         int threads) {
  std::vector<OperationFit> fits;
  std::vector<std::vector<OperationSample>> of_fit;
  for (const OperationSample& s : samples) {
    if (s.seconds <= 0) continue;
    const auto same = std::find_if(fits.begin(), fits.end(),
                                   [&](const OperationFit& o) { return o.name == s.name; });
    const size_t i = static_cast<size_t>(same - fits.begin());
    if (same == fits.end()) {
      fits.push_back({.name = s.name, .bf16 = bf16, .threads = threads});
      of_fit.emplace_back();
    }
    of_fit[i].push_back(s);
  }
  for (size_t i = 0; i < fits.size(); ++i) {
    const Fit fit = fit_one(of_fit[i]);
    fits[i].call_us = fit.call * 1e6;
    fits[i].factor = fit.factor;
  }
  return fits;
}

}  // namespace moraine
