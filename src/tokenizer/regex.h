// Regex: all matches of one pattern in valid UTF-8 text.
//
// The pattern is in the syntax of Oniguruma, which tokenizer.json files use
// (tokenizer/regex_syntax.h).
//
// Order:   leftmost matches, none overlapping; an empty match directly after a match is skipped.
// Errors:  compile: kInvalidArgument with the pattern and the place. find_all: kInvalidArgument
//          when the pattern backtracks without end (a limit that grows with the text).
// Threads: a Regex may be used from any thread.
// Cost:    machine code where the system allows it: 100 to 150 MB/s for the usual patterns.
// Source:  PCRE2.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace moraine {

struct TextRange {
  int64_t begin, end;  // bytes
  bool operator==(const TextRange&) const = default;
};

class Regex {
 public:
  // `what` names the owner in messages. `jit = false` is the slow twin, for tests.
  Regex(const std::string& pattern, const std::string& what, bool jit = true);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // Appends to `matches`.
  void find_all(std::string_view text, std::vector<TextRange>* matches) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace moraine
