// BenchTrain: a run's steps on random tokens, with the time of each operation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moraine {

struct BenchTrainOptions {
  std::string config_path;
  std::vector<std::string> assignments;
  int64_t steps;
  int64_t threads;
  bool json;
};

// Needs no data: documents of random tokens, as long as a sequence. Peaks are measured before and
// after, in the same run.
void bench_train(const BenchTrainOptions& options);

}  // namespace moraine
