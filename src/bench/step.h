// BenchStep: what each operation of a step takes on this machine, and how well the planner then predicts steps.
//
// `bench step` runs short plans of a config: one rank with all threads, and one rank for each core, each with all
// sequences of a slot at a time, half of them, and so on. It fits call time and factor of each operation
// (plan/fit_operations.h), from its least time in any step, and adds them to the machine file.
// `bench plan` runs every feasible plan of 1, 2, 4 and 8 ranks (threads of this process), each between two
// measurements of one reference, and prints what was predicted beside what was measured. Plans that the machine
// file was fitted to are told from those it was not; how well those were predicted is added to the machine file.
//
// On a machine that others use: a plan's time is the least step, over that of the reference beside it; the median
// of that ratio over the rounds, times the reference's least time of all.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/train.h"

namespace moraine {

struct BenchStepOptions {
  BenchTrainOptions train;
  std::string machine_file;         // read, and written again
  std::vector<int64_t> ranks = {};  // bench plan; empty: 1, 2, 4, 8
  int64_t rounds = 1;
};

// Errors: kInvalidArgument without a machine file, or where it cannot be written.
void bench_step(const BenchStepOptions& options);
void bench_plan(const BenchStepOptions& options);

}  // namespace moraine
