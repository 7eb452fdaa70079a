// JointWalk: the tokens that some of many automata take, found in one walk of their trie.
//
// The automata go through the trie as one set of states; each step of a set is taken once, however many tokens it is a
// part of. The bits are those of a walk with each automaton alone, but for sets that are nearly all different: once
// JointLimits::steps are taken, only the first automaton of each set that can goes on, so that what it takes is found
// and what others alone take from there on is not. Every automaton can end, so there is always something.
//
// Cost: a look-up for each node of the trie that some automaton comes to, and for each different set and byte a step of
//       all that are still in it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/token_trie.h"

namespace moraine {

struct JointStart {
  const Automaton* automaton;
  int32_t state;
  int32_t group;  // of those behind which the same goes on
};

struct JointEnds {
  struct End {
    int32_t node;    // of the trie, with nodes below it
    int32_t groups;  // of which some automaton accepts there: a place in the list below
  };
  std::vector<std::vector<int32_t>> groups;
  std::vector<End> ends;
};

struct JointLimits {
  int64_t sets = 4096;      // 4 MB of steps; of more those are forgotten that the walk is not in
  int64_t steps = 1 << 21;  // of one automaton, some 10 ns each
};

// Sets the bits of tokens inside which no automaton has ended, and returns where some do.
JointEnds walk_jointly(const ByteTrie& trie, const std::vector<JointStart>& starts,
                       std::span<uint64_t> mask, const JointLimits& limits = {});

}  // namespace moraine
