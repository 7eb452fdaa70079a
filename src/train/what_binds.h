// WhatBinds: one sentence that says what takes the time of a step, with the setting to change.
//
// Rules in a fixed order, the first one that holds speaks; each compares a share of the measured
// time with a constant. What disturbs the measurement comes first, then what is no arithmetic,
// then the arithmetic.
#pragma once

#include <string>
#include <vector>

#include "train/time_split.h"

namespace moraine {

struct BindingFacts {
  std::vector<Profile::Row> rows;  // of all steps
  RankLimits limits;
  std::vector<double> token_seconds;  // of each step: its seconds for a token, without validation,
                                      // samples and checkpoints
  bool bf16 = false;                  // the run's type
  bool bf16_faster = false;           // on this machine
  int ranks = 1;
  int cores = 1, threads = 1;                       // that a rank may use; that it does
  int64_t slots = 1;                                // of this rank
  int64_t slot_sequences = 1, micro_sequences = 1;  // of a slot; of them at a time
};

// Without a newline. Keys that it names are in docs/configuration.md.
std::string what_binds(const BindingFacts& facts);

}  // namespace moraine
