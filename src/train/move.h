// Move: from one layout (mesh of the experts, activations kept or computed again) to another, in the running job,
// because another phase has another one, or the planner has found a better one (replan.h): at the border between two
// steps all ranks store the state in the hosts' memory, open the run with the other layout among the same ranks, and
// take it up again. No process is started, and nothing waits for a disk.
//
// One event, mesh.moved, says what it cost and how fast the steps were before and are since. All calls are collective
// in that all ranks come to the same answer.
#pragma once

#include <string>

#include "train/run.h"

namespace moraine {

enum class Stopped : uint8_t { kAtTheEnd, kToMeet, kToMove };

// Of the layout that this run was opened with.
bool has_layout_of(const Run& run, const StepPlan& plan);
Stopped begin_move(Run& run, const std::string& reason, double tokens_per_s);  // kToMove
void end_move(Run& run);  // before the next step
// Once some steps have been taken.
void say_move(Run& run, double tokens_per_s);

}  // namespace moraine
