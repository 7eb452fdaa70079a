// Timeline: where a run stands at each step, as a pure function of its config.
//
// A step belongs to one phase and has one batch size (ramp, phase). A phase ends with the first
// step that reaches its tokens. Sequences are numbered from 0 inside a phase.
#pragma once

#include <cstdint>
#include <vector>

#include "train/run_config.h"

namespace moraine {

struct StepPlan {
  int64_t step = 0;  // 0 for the first
  int64_t phase = 0;
  int64_t tokens_before = 0;   // positions of all steps before this one
  int64_t batch_tokens = 0;    // positions of this step
  int64_t sequence = 0;        // positions of a sequence
  int64_t first_sequence = 0;  // of this step, in its phase
  int64_t num_sequences = 0;
};

class Timeline {
 public:
  explicit Timeline(const RunConfig& config);

  int64_t steps() const { return steps_; }
  int64_t tokens() const { return tokens_; }
  StepPlan at(int64_t step) const;  // 0 <= step < steps()
  // The first step of each phase and batch size.
  std::vector<StepPlan> kinds() const;
  // Sequences that phase `phase` has in all.
  int64_t phase_sequences(int64_t phase) const;

 private:
  // Steps of one phase and one batch size, one after another.
  struct Run {
    int64_t first_step, steps, phase, tokens_before, batch_tokens, sequence, first_sequence;
  };
  std::vector<Run> runs_;
  int64_t steps_ = 0, tokens_ = 0;
};

}  // namespace moraine
