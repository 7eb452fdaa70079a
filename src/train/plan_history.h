// PlanHistory: the plans that a process has tried, with what their steps took.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "train/mesh_plans.h"

namespace moraine {

// A plan whose steps were measured.
struct TriedPlan {
  MeshChoice choice;
  int64_t phase = 0, batch_tokens = 0;  // the kind of step
  double seconds = 0;                   // of one, in the median
};

// What a process knows of the plans of one group of ranks.
struct PlanHistory {
  int ranks = 0;
  std::optional<MeshChoice> choice;  // that the ranks go on with; empty: the planner's first
  // On rank 0: where plans are made for, what was measured there, and what the last move took.
  Place place;
  Machine machine;
  std::vector<TriedPlan> tried;
  double move_seconds = 0;
};

}  // namespace moraine
