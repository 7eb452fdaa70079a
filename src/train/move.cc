// Move: what RunKept carries over, and its event.
#include "train/move.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "train/run_kept.h"

namespace moraine {
namespace {

constexpr int64_t kJudgedSteps = 4;  // after which speed is told

std::string layout_text(const Run& run, int64_t phase) {
  const bool again = phase_recompute(run.config, phase) == Recompute::kLayer;
  return fmt::format("experts over {}, activations {}", phase_expert(run.config, phase),
                     again ? "computed again" : "kept");
}

void tell(const Run& run, MeshMove& move, double tokens_per_s) {
  if (run.first())
    log_event(Level::kInfo, "mesh.moved",
              "step={} from=\"{}\" to=\"{}\" reason=\"{}\" seconds={:.3f} "
              "tokens_per_s_before={:.0f} tokens_per_s={:.0f}",
              move.step, move.from, layout_text(run, run.options.kept->phase), move.reason,
              move.seconds, move.tokens_per_s_before, tokens_per_s);
  move = {};
}

}  // namespace

bool has_layout_of(const Run& run, const StepPlan& plan) {
  const int64_t open = run.options.kept != nullptr ? run.options.kept->phase : 0;
  return same_layout(run.config, open, plan.phase);
}

Stopped begin_move(Run& run, const std::string& reason, double tokens_per_s) {
  RunKept& kept = *run.options.kept;  // there is one wherever phases have several layouts
  if (kept.move.step >= 0) tell(run, kept.move, tokens_per_s);
  kept.move = {.step = run.state.step,
               .from = layout_text(run, kept.phase),
               .reason = reason,
               .begun = now_seconds(),
               .tokens_per_s_before = tokens_per_s};
  kept.phase = run.timeline.at(run.state.step).phase;
  return Stopped::kToMove;
}

void end_move(Run& run) {
  if (run.options.kept == nullptr) return;
  MeshMove& move = run.options.kept->move;
  if (move.step < 0 || move.seconds > 0) return;
  move.seconds = now_seconds() - move.begun;
  run.options.kept->plans.move_seconds = move.seconds;
}

void say_move(Run& run, double tokens_per_s) {
  if (run.options.kept == nullptr || run.options.kept->move.step < 0) return;
  MeshMove& move = run.options.kept->move;
  const bool is_judged = run.state.step >= move.step + kJudgedSteps;
  if (is_judged || run.state.step == run.timeline.steps()) tell(run, move, tokens_per_s);
}

}  // namespace moraine
