// Regex syntax: an Oniguruma pattern, as tokenizer.json files hold it, in the syntax of PCRE2.
//
//   \s           property White_Space (PCRE2's own also takes U+180E)
//   \w           alphabetic, marks, decimal digits, connectors (PCRE2's own varies); outside a
//                class also the superscripts and fractions of Latin-1
//   \h           hexadecimal digit
//   \p{Han}      the script; PCRE2's default is the script extensions
//   ^ $          at lines; (?m) lets . match a newline
//   x{2}+        repeated, not possessive; x?+ x*+ x++ are possessive in both
//   x{2}?        optional, not reluctant
//   [a-z&&[^b]]  intersection and nested classes
//
// Errors: kInvalidArgument, naming the construct and its place: back references, \K, \G, \X, absent
//         groups, calls, conditionals, unknown escapes, more than 100 nested groups.
// Source: Oniguruma doc/RE (syntax ONIG_SYNTAX_ONIGURUMA); checked against its behaviour.
#pragma once

#include <string>
#include <string_view>

namespace moraine {

std::string oniguruma_to_pcre2(std::string_view pattern, const std::string& what);

}  // namespace moraine
