// SlotChoice: up to how many rows of a step answers go through slots instead of by an all-gather.
//
// "on" is all that have slots, "off" none. "auto" is what is faster here and now: steps of 1, 2, 4, ... rows go both
// ways in turns, from a barrier one step for each member, to whom a single row belongs in turn. Of medians, the first
// member takes the number up to which slots gain most, the product of all_gather / slots over the sizes up to it: one
// size that was disturbed decides little. All get its choice, so that every step goes one way.
//
// Errors: kInvalidArgument for another word; kPeerLost (comm/transport.h); kIo (no memory for slots).
// Cost:   auto: kSlotRounds steps for each member and size, both ways: milliseconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/expert_gather.h"

namespace moraine {

constexpr int64_t kMostSlotRows = 128;  // beyond it a copy costs more than the wait
constexpr int kSlotRounds = 20;

struct SlotChoice {
  int64_t rows = 0;     // most of a step that go through slots
  double slots_us = 0;  // of one row, medians of the first member; 0: not measured
  double all_gather_us = 0;
};

struct GatheredRows {
  int64_t rows = 0;   // most of a step
  int64_t width = 0;  // D
  DType dtype = DType::kF32;
};

// Bounds [G+1] of rows that go to the members in turn, from member `turn` on, each time to its first group.
std::vector<int64_t> spread_rows(const ExpertGather& gather, int64_t rows, int64_t turn);

// What slots will take on each member; 0 if `wanted` is off.
int64_t slot_memory(const ExpertGather& gather, const GatheredRows& rows,
                    const std::string& wanted);

// From here on `gather` does as chosen. Collective, with the same words and rows on all.
SlotChoice choose_slots(ExpertGather& gather, const GatheredRows& rows, const std::string& wanted);

}  // namespace moraine
