// Pattern: a regular expression of JSON Schema as an automaton over bytes.
//
//   taken    literals, . [...] [^...] \d \D \w \W \s \S \t \n \r \f \v \0 \xHH \uHHHH \u{...},
//            escaped signs, groups (...) and (?:...), |, * + ? {m} {m,} {m,n} and their lazy forms
//            (which match the same texts); ^ and $ at the ends of the whole or of its alternatives
//   refused  by name: look-ahead and look-behind, back references, \b \B \p \P \c, named groups, ^
//            and $ elsewhere
//
// As in JSON Schema a pattern without ^ or $ may match anywhere in the text; a character is a code
// point.
//
// Errors:  kInvalidArgument with `place`, the construct and its byte, or the limit that it passes.
// Source:  ECMA-262 section 22.2, with the flag u.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "grammar/automaton.h"
#include "grammar/compile_work.h"

namespace moraine {

enum class TextForm {
  kPlain,  // bytes of UTF-8
  // A JSON string with its quotes: " \ and control characters escaped in their shortest form, all
  // others as they are, so that each text is written in one way.
  kJsonString,
};

struct PatternOptions {
  CompileWork& work;
  TextForm form = TextForm::kJsonString;
  std::string place{};  // for messages: where in the schema
  std::string shown{};  // for messages, in place of the pattern: what it was made of
  int64_t states_max = 16384;
};

Automaton compile_pattern(std::string_view pattern, const PatternOptions& options);

}  // namespace moraine
