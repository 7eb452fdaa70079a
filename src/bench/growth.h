// BenchGrowth: what a token costs in training as one thing grows, beside what it would cost at the machine's limits.
//
//   sequence     1024 to 32768 positions, in steps of 32768 tokens
//   experts      4 to 256 of the same width, one for each token: parameters grow, and the optimizer's work
//   batch        2048 to 65536 tokens a step
//   vocabulary   2048 to 131072
//
// Each doubles from line to line. The floor is the sum of the floors of all operations (train/time_split.h), by the
// peaks measured before the first line of each. A slope is d log(cost) / d log(value) from the line before: 0 where a
// token costs the same, 1 where its cost doubles with the value.
//
// Output: a table, or with `json` an object per line, each line as soon as it is measured; `chart`: an HTML page with a
//         picture of each.
// Errors: those of bench_train and check_file_place; kInvalidArgument for an unknown name or no value.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/train.h"

namespace moraine {

struct BenchGrowthOptions {
  BenchTrainOptions train;            // ranks are not used
  std::vector<std::string> what;      // of the names above; empty: all
  int64_t least = 1, most = 1 << 20;  // values outside are left out
  std::string chart;                  // empty: none
  // Told behind each line: how many values of all are measured.
  std::function<void(int64_t done, int64_t total)> progress = {};
};
void bench_growth(const BenchGrowthOptions& options);

}  // namespace moraine
