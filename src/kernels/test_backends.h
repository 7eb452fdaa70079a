// TestBackends: what tests of an operation ask of each backend, and values that are no numbers.
#pragma once

#include <limits>

#include "kernels/ref/element.h"
#include "testing/rig.h"

namespace moraine::testing {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(),
                kInf = std::numeric_limits<float>::infinity();

// Calls f(Rig&) for each instruction set, then for the reference.
template <class F>
void for_each_backend(const F& f) {
  for_each_isa([&](Isa) {
    Rig rig;
    f(rig);
  });
  Rig rig(Backend::kRef);
  f(rig);
}

// The sum of weight * value; 0 of an absent weight.
inline double weighted(const Tensor& weight, const Tensor& value) {
  double sum = 0;
  for (int64_t i = 0; i < value.count() && !weight.empty(); ++i) {
    sum += ref::get(weight, i) * ref::get(value, i);
  }
  return sum;
}

}  // namespace moraine::testing
