// Schedule: the learning-rate multiplier of a step as a pure function of where the run stands.
//
// The unit is steps or tokens, whatever the caller counts in; a step covers [begin, end) of it.
//
//   warm-up    end / warmup                  while end < warmup (the first step already learns)
//   then       1 at the start, `floor` at total, with p = share of what comes after warm-up that is done:
//     constant 1
//     linear   1 - p
//     cosine   (1 + cos(pi p)) / 2
//     wsd      1 until the last `decay_fraction` of total, then 1 - q (linear) or 1 - sqrt(q) over it
//
// p and q are taken at `begin`, so that the last step still learns. At and after total: floor
// (constant: 1). floor is a share of the peak: multiplier = floor + (1 - floor) * shape.
#pragma once

#include <cstdint>

namespace moraine {

struct Schedule {
  enum class Shape : uint8_t { kConstant, kLinear, kCosine, kWsd };
  enum class Decay : uint8_t { kLinear, kOneMinusSqrt };
  Shape shape = Shape::kWsd;
  Decay decay = Decay::kOneMinusSqrt;  // of wsd
  int64_t warmup = 0;                  // in the caller's unit
  int64_t total = 0;                   // of the whole run, warm-up included
  double decay_fraction = 0;           // of total, for wsd
  double floor = 0;                    // [0, 1]
};

// REQUIRES: 0 <= begin < end.
double lr_multiplier(const Schedule& schedule, int64_t begin, int64_t end);

}  // namespace moraine
