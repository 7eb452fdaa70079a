// Determiniser: the deterministic automaton of one with empty steps.
//
// Cost:   counted in CompileWork: sets of states and what they lead to, each set once.
// Source: Rabin and Scott 1959.
#pragma once

#include <cstdint>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/compile_work.h"

namespace moraine {

// The steps of states 0 to states - 1, in any order.
struct LooseSteps {
  struct Byte {
    int32_t from;
    Automaton::Edge edge;
  };
  struct Empty {
    int32_t from, to;
  };
  int32_t states = 0;
  std::vector<Byte> bytes;
  std::vector<Empty> empty;  // without a byte
};

// From state 0 to `end`. False, and nothing is made, if it takes more than `states_max` states or too much work.
bool make_deterministic(const LooseSteps& loose, int32_t end, int64_t states_max, CompileWork& work,
                        Automaton* made);

}  // namespace moraine
