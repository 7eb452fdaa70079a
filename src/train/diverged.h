// Diverged: what follows when a rank has other bits than it must have (step_verdict.h, state_seal.h).
//
//   nothing is committed   the step has moved nothing
//   distrust               what was stored after the last verified step is removed, on disk and in memory; unless
//                          it is weights that are not the same on all ranks as something is to be stored: what was
//                          stored before had the same check
//   the wrong rank         ends with kRankDiverged; another may take its place (groups.h)
//   all others             lose it, and go on from what is left, or end with a message that names it
//
// A rank may be lost before it has removed what it was to remove. So each notes what it distrusts as it leaves a group
// in which ranks were comparing, and the next group removes what any of its ranks distrusts. Only if no rank is left
// who knows, all having died at once, what was stored since the last verified step is taken up.
//
// If nobody can be named all go back, and meet again if they can; at the third time in a process all end.
#pragma once

#include "train/run.h"

namespace moraine {

// Collective: all have the same verdict. Errors: kRankDiverged on a wrong rank, kPeerLost on the others.
[[noreturn]] void leave_diverged(Run& run, const StepVerdict& verdict);

// As a rank leaves a group; where it is kept from one group to the next.
void note_distrusted(Run& run);
// Before a state is taken up. Collective.
void drop_distrusted(Run& run);

// Before something is stored. Collective. Errors: those of leave_diverged.
void check_before_store(Run& run);

// The rank that throws it tells: event rank.diverged.
void say_diverged(const Run& run, const std::string& evidence);

}  // namespace moraine
