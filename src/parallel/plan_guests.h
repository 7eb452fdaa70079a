// PlanGuests: which experts are to be guests where, so that the rows of a layer can be split evenly.
//
// Starts from the homes. While it helps, the busiest member gives rows of one expert to a member that has the expert
// already or has a slot free: as many as bring neither below, or above, what all would have if the work were level.
// The move that brings the busiest down most comes first; of equals: no new slot, then a guest that the member has
// already (its weights need not travel), then the lowest numbers. A guest for less than 1/64 of a member's level
// work is not worth its weights.
//
// Unlike in training (parallel/plan_placement.h) rows have no senders: any number of an expert's rows may move.
//
// Order:  integers and fixed ties, so all members plan the same from the same load.
// Cost:   (E/P + C) * P for each of at most P * (C + 1) moves or so: microseconds for 64 experts on 8 members.
// Source: replicas by load, EPLB; the greedy of FlexMoE (arXiv:2304.03946).
#pragma once

#include "parallel/row_split.h"

namespace moraine {

// rows: [E]. cost: [P] of a row at a member, > 0. now: what is in the slots; what stays, stays in its slot.
GuestTable plan_guests(const SplitShape& shape, std::span<const int64_t> rows,
                       std::span<const int64_t> cost, const GuestTable& now);

// Slots filled at random: a function of (seed, index). To show that nothing depends on it.
GuestTable shuffled_guests(const SplitShape& shape, uint64_t seed, uint64_t index);

}  // namespace moraine
