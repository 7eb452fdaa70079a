// PatternSyntax: a regular expression as a tree (grammar/pattern.h says what is taken).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moraine {

struct CodeRange {
  int32_t low, high;  // code points, both included
  bool operator==(const CodeRange&) const = default;
};
constexpr int32_t kCodePointMost = 0x10FFFF;

struct PatternTree {
  enum class Kind { kCharacters, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kSequence;  // without parts: the empty text
  std::vector<CodeRange> characters;
  std::vector<PatternTree> parts;
  int64_t min = 1, max = 1;  // kRepeat of parts[0]; max -1: no bound
};

// The texts that match, ends included: where ^ or $ is missing, any text is part of the tree.
PatternTree parse_pattern(std::string_view pattern, const std::string& place);

}  // namespace moraine
