// The schedule counts tokens.
#include "train/learning_rate.h"

namespace moraine {

int64_t warmup_tokens(const RunConfig& c, const Timeline& timeline) {
  if (c.optimizer.warmup_tokens > 0) return c.optimizer.warmup_tokens;
  return static_cast<int64_t>(c.optimizer.warmup_fraction * static_cast<double>(timeline.tokens()));
}

double learning_rate_scale(const RunConfig& c, const Timeline& timeline, const StepPlan& plan) {
  Schedule schedule = learning_rate_schedule(c);
  schedule.total = timeline.tokens();
  schedule.warmup = warmup_tokens(c, timeline);
  const double peak = c.phases[static_cast<size_t>(plan.phase)].learning_rate;
  const double phase = peak > 0 ? peak / c.optimizer.learning_rate : 1;
  return phase *
         lr_multiplier(schedule, plan.tokens_before, plan.tokens_before + plan.batch_tokens);
}

}  // namespace moraine
