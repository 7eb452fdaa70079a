// FitOperations: call time and factor of each operation, from measured steps.
//
//   least  sum over samples of ((calls * call + base * factor - seconds) / seconds)^2
//   with   call >= 0, factor >= least_factor
//
// The least factor is what an operation can gain over its base: a product nothing much, as the base is one that was
// measured; others what a cache gives. Without it a machine that others use would be taken for one whose work is free.
// Relative errors, so that short samples count as much as long ones. One sample, or samples that are multiples of each
// other, give a factor alone (of an operation without a base: a call time alone).
#pragma once

#include <vector>

#include "plan/step_time.h"

namespace moraine {

struct OperationSample {
  std::string name;
  double calls = 0, base_seconds = 0;  // base: times cores measured / cores of the rank
  double seconds = 0;                  // measured
  double least_factor = 0;             // kLeastOfProducts or kLeastOfOthers
};
inline constexpr double kLeastOfProducts = 0.7, kLeastOfOthers = 0.2;

// One fit for each name, in the order of first appearance. Samples of no time are left out.
std::vector<OperationFit> fit_operations(const std::vector<OperationSample>& samples, bool bf16,
                                         int threads);

}  // namespace moraine
