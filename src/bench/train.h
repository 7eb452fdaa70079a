// BenchTrain: a run's steps on random tokens, with the time of each operation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/profile.h"
#include "machine/machine.h"
#include "train/run_config.h"

namespace moraine {

struct BenchTrainOptions {
  std::string config_path;
  std::vector<std::string> assignments;
  int64_t steps;
  int64_t threads;  // of a rank; 0: the cores divided by the ranks
  int64_t ranks;    // as threads of this process; under mpirun the launcher's
  bool json;
};

// Needs no data: documents of random tokens, as long as a sequence. Peaks are measured before and
// after each step.
//
// With several ranks every other step has communication free (payloads stay where they are): the
// difference of the medians is exposed communication. Ranks as threads are also compared with one
// rank that has all their threads, measured before and after in the same run.
void bench_train(const BenchTrainOptions& options);

// The config of `options`, with what a run without data lacks.
RunConfig read_bench_config(const BenchTrainOptions& options);

// Steps of one rank.
struct TimedSteps {
  int64_t count = 0;                    // how many were measured
  double seconds = 0;                   // median of a step
  int64_t tokens = 0;                   // of a step
  std::vector<Profile::Row> rows = {};  // of all steps
};
TimedSteps time_steps(const RunConfig& config, int64_t steps, int64_t threads);

// Steps of several ranks as threads, with all their communication; rank 0's rows. The type must be settled.
struct RanksAsked {
  int ranks = 1;
  int threads = 1;  // of a rank
  int64_t steps = 3;
};
struct RankSteps {
  double seconds = 0, least_seconds = 0;  // of a step: median, least
  double least_cpu_seconds = 0;           // of all threads of the process together
  std::vector<Profile::Row> rows = {};    // one step: of each operation the one where it took least
};
RankSteps time_rank_steps(const RunConfig& config, const RanksAsked& asked, const Machine& machine);

}  // namespace moraine
