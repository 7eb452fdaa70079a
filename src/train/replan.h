// Replan: a run whose plan is the planner's asks again as it goes on, and moves where that gains.
//
// A plan is made before the first step, for the last phase, and for experts that are all asked for alike. Every
// `parallel.replan_every_steps` steps rank 0 asks the planner (mesh_plans.h) about steps as they are: their phase,
// their batch, the rows that experts really had. A plan that has run is taken by what its steps took; the others by
// what is predicted, times measured over predicted of the present one. The best plan is gone to (move.h) if it saves
// more than `parallel.replan_gate` of a step, and what is left of such steps earns several times what a move takes;
// with a gate of 0 any gain will do. So a prediction that was wrong costs one way there and one back.
//
// No bit depends on it: not the plan, nor when it changes. `parallel.plan = "shuffled"` goes to another one each time.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/plan_history.h"

namespace moraine {

struct Run;

// What is decided from. `options` are best first; one of them is `now`.
struct ReplanCase {
  struct Option {
    MeshChoice choice;
    double predicted = 0;  // seconds of a step
    bool fits = true;
  };
  std::vector<Option> options;
  MeshChoice now;
  double seconds = 0;                // measured, of a step
  std::span<const TriedPlan> tried;  // of steps of this kind
  int64_t steps_left = 0;            // of this kind
  double move_seconds = 0, gate = 0;
};
struct BetterPlan {
  MeshChoice choice;
  double seconds = 0;  // expected, of a step
};
// Empty: stay. Pure.
std::optional<BetterPlan> better_plan(const ReplanCase& c);

// Rows of the rank that has most over the mean, when `ranks` ranks have as many experts each, one after the other: the
// mean over the layers of `rows`, [layers * classes], of which the first `experts` of a layer are experts.
double rows_over_mean(std::span<const double> rows, int64_t classes, int64_t experts,
                      int64_t ranks);

// The mean of that over steps, one after the other: a router that sends its rows now here, now there is level only in
// their sum.
class RowsOverMean {
 public:
  // Of a step, on up to so many ranks.
  void add(std::span<const double> rows, int64_t classes, int64_t experts, int64_t ranks);
  double on(int64_t ranks) const;  // 1 while nothing is known

 private:
  int64_t steps_ = 0;
  std::vector<double> sums_;  // of 1, 2, 4 ... ranks
};

// What the loop has seen since the planner was asked last. Collective.
class Replan {
 public:
  // After a step of so many seconds. The reason to move, if it is time to ask and the answer is a better plan, which
  // run.options.kept then has; else empty.
  std::string ask(Run& run, const StepPlan& step, double seconds);

 private:
  std::optional<BetterPlan> decide(Run& run, const StepPlan& step, double seconds);

  std::vector<double> seconds_;  // of the steps
  RowsOverMean over_mean_;
  int64_t phase_ = -1, batch_tokens_ = 0;
};

}  // namespace moraine
