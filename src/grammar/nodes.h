// GrammarNodes: the parts of a compiled grammar.
//
// least_nesting is how many arrays and objects the smallest answer of a node has within each other;
// kNever where there is none. Nothing enters a node that could not be completed within the limit,
// so every state that is reached can be completed.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/limits.h"
#include "grammar/token_trie.h"

namespace moraine {

constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();
constexpr int32_t kNever = std::numeric_limits<int16_t>::max();

struct GrammarNode {
  enum class Kind : uint8_t {
    kAutomaton,  // automaton: its strings, of min .. max characters
    kString,     // min .. max characters
    kObject,     // properties, in order, then any others of `rest`
    kArray,      // min .. max items: parts, then any number of `rest`
    kSequence,   // parts, one after another
    kRepeat,     // rest, any number of times; then parts[0], if there is one
    kFreeText,   // anything; behind `text`, rest
    kSpaced,     // white space, then rest
    kAny,        // one of parts, none of them kAny
  };
  struct Property {
    int32_t node;
    bool required;
  };
  Kind kind = Kind::kAny;
  bool literal = false;  // kAutomaton: text that the grammar fixes, not of a value
  bool again = false;    // kFreeText: again after `rest`
  int32_t automaton = -1;
  int32_t rest = -1;  // -1: there may be none
  int64_t min = 0, max = kUnbounded;
  std::vector<int32_t> parts{};
  std::vector<Property> properties{};
  ByteTrie keys{};  // of properties, as JSON without quotes
  std::vector<int32_t>
      next_required{};  // [properties + 1] the first at or after; the count if none
  std::string text{};
  // [states] of an automaton with a max: Automaton::characters_left, and the largest of them.
  std::vector<int32_t> characters_left{};
  int64_t characters_left_most = 0;
  std::vector<int32_t> borders{};  // [text + 1] of every prefix, its longest proper one at its end

  int32_t least_nesting = kNever;
};

// Whether a token of `longest` bytes can not bring a count of characters or items to the upper bound.
inline bool bound_is_far(const GrammarNode& node, int64_t count, int64_t longest) {
  return node.max == kUnbounded || node.max - count > longest + node.characters_left_most;
}

struct GrammarNodes {
  std::vector<GrammarNode> nodes;
  std::vector<Automaton> automata;
  int32_t root = -1;
  int32_t nesting = 0;  // GrammarLimits::nesting
  int64_t work = 0;     // what it took to compile it, in units of CompileWork

  bool can_enter(int32_t node, int32_t depth) const {
    return node >= 0 && depth + nodes[node].least_nesting <= nesting;
  }
};

}  // namespace moraine
