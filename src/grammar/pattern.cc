// The tree becomes an automaton with empty steps (Thompson 1968), that a deterministic one (Rabin and Scott 1959).
#include "grammar/pattern.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "grammar/pattern_syntax.h"

namespace moraine {
namespace {

using Edge = Automaton::Edge;

constexpr int64_t kLooseStatesFactor = 16;  // of states_max: a character set takes a dozen
constexpr int64_t kWorkFactor = 64;         // of states_max: entries of all state sets together

struct LooseState {
  std::vector<Edge> edges;
  std::vector<int32_t> empty;  // steps that take no byte
};

class LooseAutomaton {
 public:
  LooseAutomaton(std::string_view pattern, const PatternOptions& options)
      : pattern_(pattern), options_(options) {}

  std::vector<LooseState> build(const PatternTree& tree, int32_t* end) {
    const int32_t start = add_state();
    const bool quoted = options_.form == TextForm::kJsonString;
    int32_t at = quoted ? add_bytes(start, "\"") : start;
    at = add_tree(tree, at);
    *end = quoted ? add_bytes(at, "\"") : at;
    return std::move(states_);
  }

  [[noreturn]] void refuse_size() const {
    throw_error(Code::kInvalidArgument,
                "{}: pattern '{}' needs more than {} states of an automaton; write it with "
                "smaller repetitions",
                options_.place, printable(pattern_, 200), options_.states_max);
  }

 private:
  int32_t add_state() {
    if (static_cast<int64_t>(states_.size()) >= options_.states_max * kLooseStatesFactor) {
      refuse_size();
    }
    states_.emplace_back();
    return static_cast<int32_t>(states_.size()) - 1;
  }
  int32_t add_bytes(int32_t from, std::string_view bytes) {
    for (const char c : bytes) {
      const int32_t to = add_state();
      states_[from].edges.push_back({static_cast<uint8_t>(c), static_cast<uint8_t>(c), to});
      from = to;
    }
    return from;
  }
  void add_empty(int32_t from, int32_t to) { states_[from].empty.push_back(to); }

  // Returns the state behind it. Every part and every repetition adds a state, so that the limit
  // holds for empty ones too.
  int32_t add_tree(const PatternTree& tree, int32_t from) {
    switch (tree.kind) {
      case PatternTree::Kind::kCharacters: {
        const int32_t to = add_state();
        for (const CodeRange& range : tree.characters) add_range(range, from, to);
        return to;
      }
      case PatternTree::Kind::kSequence:
        for (const PatternTree& part : tree.parts) from = add_tree(part, from);
        return from;
      case PatternTree::Kind::kChoice: {
        const int32_t to = add_state();
        for (const PatternTree& part : tree.parts) {
          const int32_t begin = add_state();
          add_empty(from, begin);
          add_empty(add_tree(part, begin), to);
        }
        return to;
      }
      case PatternTree::Kind::kRepeat:
        return add_repeat(tree, from);
    }
    return from;
  }

  int32_t add_repeat(const PatternTree& tree, int32_t from) {
    const PatternTree& part = tree.parts.front();
    if (std::max(tree.min, tree.max) > options_.states_max) refuse_size();
    for (int64_t i = 0; i < tree.min; ++i) {
      const int32_t begin = add_state();
      add_empty(from, begin);
      from = add_tree(part, begin);
    }
    const int32_t to = add_state();
    if (tree.max < 0) {
      const int32_t begin = add_state();
      add_empty(from, begin);
      add_empty(add_tree(part, begin), begin);
      add_empty(begin, to);
      return to;
    }
    for (int64_t i = tree.min; i < tree.max; ++i) {
      const int32_t begin = add_state();
      add_empty(from, begin);
      add_empty(from, to);
      from = add_tree(part, begin);
    }
    add_empty(from, to);
    return to;
  }

  void add_range(CodeRange range, int32_t from, int32_t to) {
    if (options_.form == TextForm::kJsonString) {
      for (int32_t code = range.low; code <= std::min(range.high, 0x1F); ++code) {
        add_control(code, from, to);
      }
      range.low = std::max(range.low, 0x20);
      for (const int32_t code : {0x22, 0x5C}) {
        if (range.low > code || range.high < code) continue;
        const int32_t escaped = add_bytes(from, "\\");
        states_[escaped].edges.push_back(
            {static_cast<uint8_t>(code), static_cast<uint8_t>(code), to});
        add_utf8({range.low, code - 1}, from, to);
        range.low = code + 1;
      }
    }
    add_utf8(range, from, to);
  }

  void add_control(int32_t code, int32_t from, int32_t to) {
    static constexpr std::string_view kLetters = "btnfr", kCodes = "\b\t\n\f\r";
    const size_t i = kCodes.find(static_cast<char>(code));
    if (i != std::string_view::npos) {
      add_empty(add_bytes(from, {std::string("\\") + kLetters[i]}), to);
      return;
    }
    const int32_t high = add_bytes(from, code < 16 ? "\\u000" : "\\u001");
    const char digit = "0123456789abcdef"[code & 15];
    add_empty(add_bytes(high, {&digit, 1}), to);
    if (digit < 'a') return;
    const char upper = static_cast<char>(digit - 0x20);
    add_empty(add_bytes(high, {&upper, 1}), to);
  }

  // Cut where the number of bytes changes, around the surrogates, and where a byte before the last
  // does not run through all its values.
  void add_utf8(CodeRange range, int32_t from, int32_t to) {
    if (range.low > range.high) return;
    for (const int32_t cut : {0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF}) {
      if (range.low > cut || range.high <= cut) continue;
      add_utf8({range.low, cut}, from, to);
      add_utf8({cut + 1, range.high}, from, to);
      return;
    }
    if (range.low >= 0xD800 && range.high <= 0xDFFF) return;
    for (int bits = 6; bits <= 18; bits += 6) {
      const int32_t low_bits = (1 << bits) - 1;
      if ((range.low & ~low_bits) == (range.high & ~low_bits)) break;
      if ((range.low & low_bits) != 0) {
        add_utf8({range.low, range.low | low_bits}, from, to);
        add_utf8({(range.low | low_bits) + 1, range.high}, from, to);
        return;
      }
      if ((range.high & low_bits) != low_bits) {
        add_utf8({range.low, (range.high & ~low_bits) - 1}, from, to);
        add_utf8({range.high & ~low_bits, range.high}, from, to);
        return;
      }
    }
    std::string low, high;
    append_utf8(range.low, &low);
    append_utf8(range.high, &high);
    for (size_t i = 0; i < low.size(); ++i) {
      const int32_t next = i + 1 < low.size() ? add_state() : to;
      states_[from].edges.push_back(
          {static_cast<uint8_t>(low[i]), static_cast<uint8_t>(high[i]), next});
      from = next;
    }
  }

  const std::string_view pattern_;
  const PatternOptions& options_;
  std::vector<LooseState> states_;
};

// Sets of loose states become states.
class Determiniser {
 public:
  Determiniser(const std::vector<LooseState>& loose, int64_t states_max)
      : loose_(loose), states_max_(states_max), seen_(loose.size(), 0) {}

  // False if there are too many.
  bool run(int32_t end, Automaton* made) {
    number_of({0});
    std::vector<std::vector<Edge>> edges;
    std::vector<bool> accepting;
    for (size_t i = 0; i < sets_.size(); ++i) {
      const std::vector<int32_t> set = *sets_[i];
      accepting.push_back(std::binary_search(set.begin(), set.end(), end));
      edges.push_back(edges_of(set));
      work_ += static_cast<int64_t>(set.size());
      if (static_cast<int64_t>(sets_.size()) > states_max_ || work_ > states_max_ * kWorkFactor) {
        return false;
      }
    }
    *made = Automaton::of_states(edges, accepting);
    return true;
  }

 private:
  int32_t number_of(std::vector<int32_t> set) {
    ++epoch_;
    for (const int32_t state : set) seen_[state] = epoch_;
    for (size_t i = 0; i < set.size(); ++i) {
      for (const int32_t to : loose_[set[i]].empty) {
        if (std::exchange(seen_[to], epoch_) != epoch_) set.push_back(to);
      }
    }
    std::sort(set.begin(), set.end());
    const auto [at, made] = number_.try_emplace(std::move(set), static_cast<int32_t>(sets_.size()));
    if (made) sets_.push_back(&at->first);
    return at->second;
  }

  std::vector<Edge> edges_of(const std::vector<int32_t>& set) {
    std::vector<Edge> all;
    std::vector<int32_t> cuts;  // where the set of edges changes
    for (const int32_t state : set) {
      for (const Edge& edge : loose_[state].edges) {
        all.push_back(edge);
        cuts.push_back(edge.low);
        cuts.push_back(edge.high + 1);
      }
    }
    work_ += static_cast<int64_t>(all.size());
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<Edge> out;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      std::vector<int32_t> to;
      for (const Edge& edge : all) {
        if (edge.low <= cuts[i] && cuts[i] <= edge.high) to.push_back(edge.to);
      }
      if (to.empty()) continue;
      std::sort(to.begin(), to.end());
      to.erase(std::unique(to.begin(), to.end()), to.end());
      out.push_back({static_cast<uint8_t>(cuts[i]), static_cast<uint8_t>(cuts[i + 1] - 1),
                     number_of(std::move(to))});
    }
    return out;
  }

  const std::vector<LooseState>& loose_;
  const int64_t states_max_;
  std::map<std::vector<int32_t>, int32_t> number_;
  std::vector<const std::vector<int32_t>*> sets_;
  std::vector<int64_t> seen_;
  int64_t epoch_ = 0, work_ = 0;
};

}  // namespace

Automaton compile_pattern(std::string_view pattern, const PatternOptions& options) {
  const PatternTree tree = parse_pattern(pattern, options.place);
  LooseAutomaton loose(pattern, options);
  int32_t end = 0;
  const std::vector<LooseState> states = loose.build(tree, &end);
  Automaton made;
  if (!Determiniser(states, options.states_max).run(end, &made)) loose.refuse_size();
  return made;
}

}  // namespace moraine
