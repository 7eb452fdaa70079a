// Lexer: the text of a template as tokens, with the white space around tags as Hugging Face sets Jinja up.
//
//   trim_blocks    the first line end behind a block or comment tag is dropped, unless it is +%}
//   lstrip_blocks  white space between the beginning of a line and a block or comment tag is dropped, unless
//                  it is {%+
//   - in a tag     all white space on that side is dropped
//   the one line end at the end of the template is dropped; \r\n and \r are \n
//
// Errors: kInvalidArgument with the line: a tag, a text or a bracket that does not end, a character that
//         begins nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/runtime.h"

namespace moraine::jinja {

enum class TokenKind : uint8_t {
  kData,        // text: as it is printed
  kPrintBegin,  // {{
  kPrintEnd,    // }}
  kBlockBegin,  // {%
  kBlockEnd,    // %}
  kName,        // text
  kString,      // text: without quotes, escapes resolved
  kInteger,     // integer
  kFloat,       // real
  kSign,        // text: an operator or a bracket
  kEnd,
};

struct Token {
  TokenKind kind;
  int32_t line;
  std::string text;
  int64_t integer = 0;
  double real = 0;
};

// `rt` is for the errors. The last token is kEnd.
std::vector<Token> read_tokens(Runtime& rt, const std::string& source);

}  // namespace moraine::jinja
