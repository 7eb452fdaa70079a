// BenchExperts: what placing busy experts on further ranks does to a run whose routes are given.
//
//   balance    for each exponent s: the share of the k-th expert of a layer falls as 1 / k^s, in an order drawn
//              for each layer. Two trainers of the same ranks take turns, one static and one balanced: busiest rank
//              over mean in rows, time of a step, the processor time of the rank with the most (of its first
//              thread). Beside it the floor without replication (one expert is at one rank), and what EPLB would
//              reach in as many places.
//   hot        even routes, then one expert of each layer gets half of all rows: steps until busiest over mean is
//              at most kLevel
//   slow       even routes, then rank 1 takes twice as long in its experts: likewise, of seconds
//
// Losses of both trainers must be the same in every step: an Error if one is not.
// Ranks are threads; with more ranks than cores they share them, and the times say how much work there is rather
// than how soon it is done.
// Output: tables on stdout, or with `json` an object per line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moraine {

struct BenchExpertsOptions {
  std::string config_path;  // "": a small model with 16 experts
  std::vector<std::string> assignments;
  std::vector<double> zipf = {0.5, 0.8, 1.2};
  int64_t ranks = 2;
  int64_t steps = 12;   // timed, of each trainer
  int64_t threads = 1;  // of a rank
  bool serve = false;   // ranks that serve instead (bench/serving_experts.h)
  bool json = false;
};

// Errors: those of the config; kInvalidArgument for ranks that can not divide the experts.
void bench_experts(const BenchExpertsOptions& options);

}  // namespace moraine
