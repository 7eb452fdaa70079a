// RunHeartbeat: a few stores.
#include "train/run_heartbeat.h"

#include <algorithm>

#include "base/heartbeat.h"

namespace moraine {

void say_step(const StepMetrics& m, const Profile& profile) {
  double waited = 0;
  for (const Profile::Row& row : profile.rows())
    waited += row.span == Span::kRanks ? row.seconds : 0;
  HeartbeatPage& page = heartbeat();
  page.step_seconds = m.seconds;
  page.compute_seconds = std::max(0.0, m.seconds - waited);
  page.loss = m.loss;
  page.gradient_norm = m.gradient_norm;
  page.tokens_per_second = m.tokens_per_s;
  page.step = m.step;
}

void say_state(const Run& run) {
  HeartbeatPage& page = heartbeat();
  page.step = run.state.step;
  page.steps_total = run.timeline.steps();
  page.rollbacks = run.state.rollbacks;
  page.checkpoint_step = std::max(page.checkpoint_step.load(), run.saves.saved_step);
  page.memory_step = std::max(page.memory_step.load(), run.saves.memory_step);
}

}  // namespace moraine
