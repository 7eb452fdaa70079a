// RoundToEven: the integer next to a value, to even on a tie, as the engines round.
#pragma once

namespace moraine {

// |value| < 2^22: what is added leaves no bits for a fraction. No call, unlike nearbyintf where the machine is taken to
// have no instruction for it.
inline float round_to_even(float value) {
  constexpr float kShift = 0x1.8p23f;
  return (value + kShift) - kShift;
}

}  // namespace moraine
