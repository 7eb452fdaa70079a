// AskedFlip: a bit of a rank's weights or gradients, changed because `moraine chaos` asks for it: what a fault of the
// hardware would leave there, at a moment when it can be said what must come of it.
//
// Who asks writes it into the process' heartbeat page; the process takes it at its next point of that kind
// (fault_bytes). Only a process that was started with MORAINE_CHAOS_FLIPS set obeys.
//
// Events: chaos.flipped.
#pragma once

#include <cstdint>

namespace moraine {

constexpr const char* kFlipsVariable = "MORAINE_CHAOS_FLIPS";

enum class FlipPlace : uint8_t {
  kNone,
  kWeights,  // all of this rank, before a step
  kGradients,  // of a slot, as it begins: zeros, so always bit 30 of a float, which adds 2 to one gradient
};

// As it stands in HeartbeatPage::asked_flip; `where`: which bit, a share of all in [0, 1).
uint64_t asked_flip(FlipPlace place, double where);

// Takes the handler of fault_bytes, if the variable is set. Before the run.
void obey_flips();

}  // namespace moraine
