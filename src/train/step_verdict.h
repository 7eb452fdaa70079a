// StepVerdict: which ranks have wrong bits, from what all ranks say of a step that is not committed yet.
//
//   state   weights that every rank has, experts' weights of those that have the same, and the numbers of the step
//           (loss, norm, clip factor, counts): whoever is not with more than half of its group is wrong
//   slots   the gradients of one slot of each rank, computed by the rank itself and by another. Where the two differ,
//           more passes decide: a third rank's (the odd one of three is wrong), or, if there is none, both once more
//           (who is not consistent is wrong)
//
// A rank that computes rows for others, because it holds experts or shares sequences, spoils what several say. Then
// one is named only if the gradients tell whose it was, else all that it could be are suspects.
//
// Pure functions of what all have seen: every rank comes to the same.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "parallel/mesh.h"

namespace moraine {

// Of the gradients of one slot, before they are added to anything.
struct SlotHash {
  Hash128 shared;   // of what every rank has, with the slot's loss
  Hash128 experts;  // of the experts held here, for the slots of all their senders
  bool operator==(const SlotHash&) const = default;
};

// by[r]: what rank r has found of the slot of rank r - shift.
struct SlotPass {
  int shift = 0;
  std::vector<SlotHash> by;
};

struct StepReport {
  Hash128 weights, experts, numbers;
  SlotHash own, again;  // `again`: of the slot of rank - slot_shift(mesh)
};

struct StepVerdict {
  std::vector<int> wrong;     // ascending
  std::vector<int> suspects;  // if none is wrong for certain: one of these is; ascending
  std::string evidence;
  bool agreed() const { return wrong.empty() && suspects.empty(); }
};

// From a rank to the one that computes its slot again: no rank of those that share experts or a sequence with it, where
// there are others; 0: there is only itself.
int slot_shift(const Mesh& mesh);
// The shifts of the passes that decide, once two do not agree.
std::vector<int> deciding_shifts(const Mesh& mesh);

StepVerdict judge_state(const Mesh& mesh, std::span<const StepReport> reports);
bool slots_agree(const Mesh& mesh, const SlotPass& own, const SlotPass& again);
// more: by deciding_shifts.
StepVerdict judge_slots(const Mesh& mesh, const SlotPass& own, const SlotPass& again,
                        std::span<const SlotPass> more);

}  // namespace moraine
