// NumberRange: the numbers between two bounds, digit by digit, as an automaton.
//
//   whole numbers  [-] at most 18 digits; no -0
//   others         [-] at most 18 digits, then at most 18 behind the point; without bounds also an
//                  exponent of at most 2 digits (3 if it is negative)
//
// So every number that comes out fits an int64_t or a double, and none goes on forever. Bounds are
// compared as decimals, exactly.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "grammar/automaton.h"
#include "grammar/pattern.h"

namespace moraine {

struct NumberRange {
  bool whole = false;
  // Numbers, or null for no bound.
  Json least{}, above{}, most{}, below{};
};

// `options` but for its form. Errors: kInvalidArgument for a bound that is no finite number. Empty if there is no such
// number.
Automaton compile_range(const NumberRange& range, PatternOptions options);

}  // namespace moraine
