// PlacementChange: how experts are placed, and what a change of that is expected to gain.
#pragma once

#include <cstdint>

namespace moraine {

// kShuffled: at random, another at each step: to show that nothing depends on it.
enum class PlacementMode : uint8_t { kStatic, kBalanced, kShuffled };

// What changed, with what is expected of it.
struct PlacementChange {
  const char* reason = "load";  // "load", "speed" (a member is slow, or no more), "shuffle"
  int64_t layers = 0;           // changed
  int64_t guests = 0;           // in force, of all layers and members
  int64_t new_guests = 0;       // that were none before
  int64_t bytes =
      0;  // training: of all guests, each step: weights and gradients; serving: of new ones, once
  double over_mean_before = 1, over_mean_after = 1;  // busiest over mean work, all layers
  double gain_seconds = 0;                           // of a step
};

}  // namespace moraine
