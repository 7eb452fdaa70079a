// Automaton: a deterministic automaton over bytes, from every state of which the end can be reached.
//
// State 0 is the start. An automaton without states accepts nothing.
// Threads: immutable once made.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/compile_work.h"

namespace moraine {

class Automaton {
 public:
  struct Edge {
    uint8_t low, high;  // bytes, both included
    int32_t to;
  };

  int64_t bytes() const {  // of its vectors
    return static_cast<int64_t>(begin_.size() * sizeof(int32_t) + edges_.size() * sizeof(Edge) +
                                accepting_.size() / 8);
  }
  int64_t states() const { return static_cast<int64_t>(accepting_.size()); }
  bool empty() const { return accepting_.empty(); }
  bool accepting(int32_t state) const { return accepting_[state]; }
  bool goes_on(int32_t state) const { return begin_[state] < begin_[state + 1]; }
  int32_t next(int32_t state, uint8_t byte) const {  // -1: none
    for (int32_t i = begin_[state]; i < begin_[state + 1]; ++i) {
      if (byte <= edges_[i].high) return byte >= edges_[i].low ? edges_[i].to : -1;
    }
    return -1;
  }
  bool accepts(std::string_view text) const;
  // [states] Of texts in UTF-8: how many characters begin at least before a state that accepts.
  std::vector<int32_t> characters_left() const;
  std::span<const Edge> edges(int32_t state) const {
    return std::span(edges_).subspan(begin_[state], begin_[state + 1] - begin_[state]);
  }

  // Exactly these strings.
  static Automaton of_strings(std::vector<std::string> strings);
  // What both accept. False, and nothing is made, if it takes more than `states_max` states, or the work is too much.
  static bool intersect(const Automaton& a, const Automaton& b, int64_t states_max,
                        CompileWork& work, Automaton* both);
  // From states with edges in order of bytes that do not overlap; drops what leads nowhere.
  static Automaton of_states(const std::vector<std::vector<Edge>>& edges,
                             const std::vector<bool>& accepting);

 private:
  std::vector<int32_t> begin_;  // [states + 1]
  std::vector<Edge> edges_;
  std::vector<bool> accepting_;
};

}  // namespace moraine
