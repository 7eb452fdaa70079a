// BenchMachine: what this machine can do, and how much of it the dense products get.
//
// `bench memory` measures arithmetic and memory limits; `bench gemm` runs the products of the
// training step in pairs with the register-only loop, and prints the median of the pairs' ratios.
// Both write the limits to the machine file, if one is named.
//
// Output: a table on stdout, or with `json` one object per line:
//         {"bench":"memory","name":...,"median":...,"p10":...,"p90":...,"unit":...,"threads":...,"isa":...}
//         {"bench":"gemm","name":...,"rows":...,"n":...,"k":...,"groups":...,"dtype":...,"gflops":...,"weight_gbs":...,
//          "percent":...,"p10":...,"p90":...,"threads":...,"isa":...}
#pragma once

#include <string>

#include "base/pool.h"
#include "machine/machine.h"

namespace moraine {

struct BenchOptions {
  bool json = false;
  int threads = 1;           // >= 1
  std::string machine_file;  // written or updated; empty: none
};

void bench_memory(const BenchOptions& options);
void bench_gemm(const BenchOptions& options);

// Two forward products and the peak in turns, for a second: each one's best rate as a share of the best peak, in
// percent. Neighbours on the machine only lower a rate.
struct ProductShares {
  double first = 0, second = 0;
};
ProductShares compare_products(const ProductPoint& first, const ProductPoint& second, Pool& pool);

}  // namespace moraine
