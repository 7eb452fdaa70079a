// SpecialTexts: where texts of a tokenizer's special tokens stand in a text that anybody may have written.
//
// A tree of bytes: at most one step for each byte of the longest text at each place, however many texts there are.
//
// Errors:  none.
// Threads: any, once it is made.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace moraine {

class SpecialTexts {
 public:
  SpecialTexts() = default;  // of none
  explicit SpecialTexts(const Tokenizer& tokenizer);

  // The longest that begins at `at` of `text`, as a part of `text`; empty: none does.
  std::string_view begins(std::string_view text, size_t at) const;
  bool is_in(std::string_view text) const;  // any of them, anywhere

 private:
  void add(std::string_view text);

  std::unordered_map<uint32_t, uint32_t> next_;  // of node * 256 + byte
  std::vector<bool> ends_ = {false};  // of each node: a text ends here; the first is the root
};

}  // namespace moraine
