// BenchServingExperts: what placing busy experts on further ranks does to ranks that serve, on given routes.
//
// For each exponent s and each kind of step (a chunk of a prompt; an answer's next row of each of some sequences): two
// models of the same ranks take turns, one static and one balanced, planned every 8 steps. Printed: busiest rank
// over mean in work (parallel/row_split.h), before and after; and at least, if no expert is torn; processor
// time that the busiest rank of each layer takes in its experts, and the time of a step.
// Hidden rows of both must have the same bits in every step: an Error if they have not.
// Ranks are threads; with more ranks than cores they share them, and the times of steps say little.
// Output: a table on stdout, or with `json` an object per line.
#pragma once

#include "model/config.h"
#include "tensor/tensor.h"

namespace moraine {

struct BenchServingExpertsOptions {
  ModelConfig model = {};
  DType compute = DType::kF32;
  std::vector<double> zipf = {};
  int64_t ranks = 2, slots = 2;
  int64_t steps = 12;   // timed, of each model
  int64_t threads = 1;  // of a rank
  bool json = false;
};

// Errors: kInvalidArgument for more ranks than experts.
void bench_serving_experts(const BenchServingExpertsOptions& options);

}  // namespace moraine
