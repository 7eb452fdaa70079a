// The tree becomes an automaton with empty steps (Thompson 1968), that a deterministic one.
#include "grammar/pattern.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "grammar/determiniser.h"
#include "grammar/pattern_syntax.h"

namespace moraine {
namespace {

constexpr int64_t kLooseStatesFactor = 16;         // of states_max: a character set takes a dozen
constexpr int64_t kStateWork = 4, kRangeWork = 4;  // units of CompileWork

class LooseAutomaton {
 public:
  LooseAutomaton(std::string_view pattern, const PatternOptions& options)
      : pattern_(pattern), options_(options) {}

  LooseSteps build(const PatternTree& tree, int32_t* end) {
    const int32_t start = add_state();
    const bool quoted = options_.form == TextForm::kJsonString;
    int32_t at = quoted ? add_bytes(start, "\"") : start;
    at = add_tree(tree, at);
    *end = quoted ? add_bytes(at, "\"") : at;
    return std::move(steps_);
  }

  [[noreturn]] void refuse_size() const {
    if (options_.work.exhausted()) refuse_work();
    throw_error(
        Code::kInvalidArgument,
        "{}: {} needs more than {} states of an automaton; write it with smaller repetitions",
        options_.place, shown(), options_.states_max);
  }

 private:
  std::string shown() const {
    return options_.shown.empty() ? "pattern '" + printable(pattern_, 200) + "'" : options_.shown;
  }
  [[noreturn]] void refuse_work() const {
    throw_error(
        Code::kInvalidArgument,
        "{}: {} brings the work for the schema past {} units, which is the limit; write it "
        "with smaller repetitions, or with fewer parts that may be empty or match the same text",
        options_.place, shown(), options_.work.most());
  }
  void spend(int64_t units) {
    if (!options_.work.spend(units)) refuse_work();
  }
  int32_t add_state() {
    spend(kStateWork);
    if (steps_.states >= options_.states_max * kLooseStatesFactor) refuse_size();
    return steps_.states++;
  }
  int32_t add_bytes(int32_t from, std::string_view bytes) {
    for (const char c : bytes) {
      const int32_t to = add_state();
      add_byte(from, c, to);
      from = to;
    }
    return from;
  }
  void add_edge(int32_t from, uint8_t low, uint8_t high, int32_t to) {
    steps_.bytes.push_back({from, {low, high, to}});
  }
  void add_byte(int32_t from, char byte, int32_t to) {
    add_edge(from, static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), to);
  }
  void add_empty(int32_t from, int32_t to) { steps_.empty.push_back({from, to}); }

  // Returns the state behind it. Every part and every repetition adds a state, so that the limit
  // holds for empty ones too.
  int32_t add_tree(const PatternTree& tree, int32_t from) {
    switch (tree.kind) {
      case PatternTree::Kind::kCharacters: {
        const int32_t to = add_state();
        add_characters(tree.characters, from, to);
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

  void add_characters(const std::vector<CodeRange>& characters, int32_t from, int32_t to) {
    spend(kRangeWork * static_cast<int64_t>(characters.size()));
    const bool quoted = options_.form == TextForm::kJsonString;
    if (quoted) add_escaped(characters, from, to);
    for (CodeRange range : characters) {
      if (quoted) range.low = std::max(range.low, 0x20);
      for (const int32_t code : {0x22, 0x5C}) {
        if (!quoted || range.low > code || range.high < code) continue;
        add_utf8({range.low, code - 1}, from, to);
        range.low = code + 1;
      }
      add_utf8(range, from, to);
    }
  }

  // Those that a string in JSON has behind a backslash, with the start that they share written once.
  void add_escaped(const std::vector<CodeRange>& characters, int32_t from, int32_t to) {
    static constexpr std::string_view kSigns = "\"\\\b\t\n\f\r", kLetters = "\"\\btnfr";
    std::string letters, digits[2];  // behind the backslash; behind \u000 and \u001
    const auto add = [&](int32_t code) {
      const size_t i = kSigns.find(static_cast<char>(code));
      if (i != std::string_view::npos) {
        letters += kLetters[i];
      } else {
        digits[code >> 4] += "0123456789abcdef"[code & 15];
      }
    };
    for (const CodeRange& range : characters) {
      for (int32_t code = range.low; code <= std::min(range.high, 0x1F); ++code) add(code);
      for (const int32_t code : {0x22, 0x5C}) {
        if (range.low <= code && code <= range.high) add(code);
      }
    }
    if (letters.empty() && digits[0].empty() && digits[1].empty()) return;
    const int32_t escaped = add_bytes(from, "\\");
    for (const char letter : letters) add_byte(escaped, letter, to);
    if (digits[0].empty() && digits[1].empty()) return;
    const int32_t zeros = add_bytes(escaped, "u00");
    for (const size_t high : {0, 1}) {
      if (digits[high].empty()) continue;
      const int32_t last = add_bytes(zeros, high == 0 ? "0" : "1");
      for (const char digit : digits[high]) {
        add_byte(last, digit, to);
        if (digit >= 'a') add_byte(last, static_cast<char>(digit - 0x20), to);
      }
    }
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
      add_edge(from, static_cast<uint8_t>(low[i]), static_cast<uint8_t>(high[i]), next);
      from = next;
    }
  }

  const std::string_view pattern_;
  const PatternOptions& options_;
  LooseSteps steps_;
};

}  // namespace

Automaton compile_pattern(std::string_view pattern, const PatternOptions& options) {
  const PatternTree tree = parse_pattern(pattern, options.place);
  LooseAutomaton loose(pattern, options);
  int32_t end = 0;
  const LooseSteps steps = loose.build(tree, &end);
  Automaton made;
  if (!make_deterministic(steps, end, options.states_max, options.work, &made)) loose.refuse_size();
  return made;
}

}  // namespace moraine
