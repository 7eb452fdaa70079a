// Both configs' steps, one after another.
#include "train/same_past.h"

#include <fmt/format.h>

#include "train/learning_rate.h"

namespace moraine {

std::string past_text(const RunConfig& config) {
  RunConfig c = config;
  const OptimizerConfig any;
  c.train.tokens = c.train.steps = 0;
  for (PhaseConfig& phase : c.phases) phase.tokens = phase.steps = 0;
  c.optimizer.schedule = any.schedule;
  c.optimizer.decay = any.decay;
  c.optimizer.decay_fraction = any.decay_fraction;
  c.optimizer.warmup_fraction = any.warmup_fraction;
  c.optimizer.warmup_tokens = any.warmup_tokens;
  c.optimizer.floor = any.floor;
  return answer_text(c);
}

namespace {

bool same_place(const StepPlan& a, const StepPlan& b) {
  return a.phase == b.phase && a.tokens_before == b.tokens_before &&
         a.batch_tokens == b.batch_tokens && a.sequence == b.sequence &&
         a.first_sequence == b.first_sequence && a.num_sequences == b.num_sequences;
}

std::string rate_difference(const RunConfig& run, double before, const RunConfig& now,
                            double after) {
  const int64_t warmup = warmup_tokens(run, Timeline(run));
  std::string text = fmt::format("has {:.6g} of the learning rate, it had {:.6g}", after, before);
  if (warmup != warmup_tokens(now, Timeline(now)))
    text += fmt::format("; optimizer.warmup_tokens = {} is the warm-up that the run began with",
                        warmup);
  return text;
}

}  // namespace

StepDifference first_other_step(const RunConfig& run, const RunConfig& now, int64_t steps) {
  const Timeline before(run), after(now);
  for (int64_t step = 0; step < steps; ++step) {
    if (step >= after.steps())
      return {step, fmt::format("is not taken: the run would have {} steps", after.steps())};
    if (step >= before.steps())
      return {step, fmt::format("is none of the {} that the run had", before.steps())};
    const StepPlan a = before.at(step), b = after.at(step);
    if (!same_place(a, b)) return {step, "would be of another phase or batch"};
    const double rate_a = learning_rate_scale(run, before, a),
                 rate_b = learning_rate_scale(now, after, b);
    if (rate_a != rate_b) return {step, rate_difference(run, rate_a, now, rate_b)};
  }
  return {steps, ""};
}

}  // namespace moraine
