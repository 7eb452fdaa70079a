// PlanPlacement: a placement of one layer's experts that makes the busiest member less busy.
//
// Starts from the homes. While it helps, the busiest member gives rows of one expert, whole senders of it,
// to a member that holds the expert already or has a guest slot free: the largest part that makes
// neither of both busier than all would be if the work were level. Where no part fits, the one that lowers
// the busiest most; where none does, parts are swapped. Of equals: no new slot, then a guest that the
// member has already (its weights need not travel), then the lowest numbers.
//
// What a replica can not do here: split one source's rows. A part of an expert is about 1/M of it.
//
// Order:  integers and fixed ties, so all members plan the same from the same load.
// Cost:   (E/M + C) * M * M for each part moved; a fraction of a millisecond for 64 experts on 8 members,
//         some milliseconds for 256 on 32.
// Source: the greedy of FlexMoE (arXiv:2304.03946) and MindSpeed on the replicas of EPLB; homes that keep
//         the optimizer state: SYMI (arXiv:2504.19925).
#pragma once

#include "parallel/expert_placement.h"

namespace moraine {

// now: what is in force, for ties.
ExpertPlacement plan_placement(const PlacementShape& shape, const PlacementLoad& load,
                               const ExpertPlacement& now);

// Sources given to members at random: a function of (seed, index). To show that nothing depends on it.
ExpertPlacement shuffled_placement(const PlacementShape& shape, uint64_t seed, uint64_t index);

}  // namespace moraine
