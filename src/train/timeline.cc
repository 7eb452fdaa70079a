// Timeline: cuts each phase where the batch size changes.
#include "train/timeline.h"

#include <algorithm>

namespace moraine {
namespace {

// The batch at `tokens_seen`, and where the ramp changes it next (INT64_MAX: never).
struct RampPoint {
  int64_t batch_tokens, until;
};

RampPoint ramp_at(const RunConfig& c, const PhaseConfig& phase, int64_t tokens_seen) {
  if (phase.batch_tokens > 0) return {phase.batch_tokens, INT64_MAX};
  for (size_t i = 0; i < c.train.ramp_tokens.size(); ++i) {
    if (tokens_seen < c.train.ramp_tokens[i])
      return {c.train.ramp_batch_tokens[i], c.train.ramp_tokens[i]};
  }
  return {c.train.batch_tokens, INT64_MAX};
}

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

Timeline::Timeline(const RunConfig& c) {
  for (size_t p = 0; p < c.phases.size(); ++p) {
    const PhaseConfig& phase = c.phases[p];
    const int64_t sequence = phase.sequence > 0 ? phase.sequence : c.train.sequence;
    int64_t tokens_left = phase.tokens > 0 ? phase.tokens : INT64_MAX;
    int64_t steps_left = phase.steps > 0 ? phase.steps : INT64_MAX, first_sequence = 0;
    while (tokens_left > 0 && steps_left > 0) {
      const RampPoint ramp = ramp_at(c, phase, tokens_);
      int64_t steps = steps_left;
      if (tokens_left != INT64_MAX)
        steps = std::min(steps, divide_up(tokens_left, ramp.batch_tokens));
      if (ramp.until != INT64_MAX)
        steps = std::min(steps, divide_up(ramp.until - tokens_, ramp.batch_tokens));
      runs_.push_back({.first_step = steps_,
                       .steps = steps,
                       .phase = static_cast<int64_t>(p),
                       .tokens_before = tokens_,
                       .batch_tokens = ramp.batch_tokens,
                       .sequence = sequence,
                       .first_sequence = first_sequence});
      const int64_t tokens = steps * ramp.batch_tokens;
      steps_ += steps;
      tokens_ += tokens;
      first_sequence += tokens / sequence;
      if (tokens_left != INT64_MAX) tokens_left -= tokens;
      if (steps_left != INT64_MAX) steps_left -= steps;
    }
  }
}

StepPlan Timeline::at(int64_t step) const {
  MR_CHECK(step >= 0 && step < steps_, "step %ld of %ld", long(step), long(steps_));
  const auto after = std::upper_bound(runs_.begin(), runs_.end(), step,
                                      [](int64_t s, const Run& r) { return s < r.first_step; });
  const Run& run = *(after - 1);
  const int64_t index = step - run.first_step, sequences = run.batch_tokens / run.sequence;
  return {.step = step,
          .phase = run.phase,
          .tokens_before = run.tokens_before + index * run.batch_tokens,
          .batch_tokens = run.batch_tokens,
          .sequence = run.sequence,
          .first_sequence = run.first_sequence + index * sequences,
          .num_sequences = sequences};
}

std::vector<StepPlan> Timeline::kinds() const {
  std::vector<StepPlan> kinds;
  for (const Run& run : runs_) kinds.push_back(at(run.first_step));
  return kinds;
}

int64_t Timeline::phase_sequences(int64_t phase) const {
  int64_t sequences = 0;
  for (const Run& run : runs_) {
    if (run.phase == phase) sequences += run.steps * run.batch_tokens / run.sequence;
  }
  return sequences;
}

}  // namespace moraine
