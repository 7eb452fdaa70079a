// UTF-8: where a text stops being valid.
//
// Valid is what the Unicode standard says (table 3-7): no overlong forms, no surrogates, nothing
// above U+10FFFF.
// Cost: many GB/s when valid (simdjson); a byte loop only behind the first error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moraine {

// Offset of the first byte that begins no valid character; -1 if all is valid.
int64_t first_invalid_utf8(std::string_view text);

// How many bytes belong to no valid character.
int64_t count_invalid_utf8(std::string_view text);

// Replaces every byte that belongs to no valid character by the private-use character
// U+10FF00 + byte; `restore_invalid_utf8` is the inverse. For passing such a text through a strict
// parser.
std::string mark_invalid_utf8(std::string_view text);
std::string restore_invalid_utf8(std::string_view text);

// Whether `text` itself holds one of those private-use characters, as UTF-8 or as a JSON escape.
bool has_utf8_marks(std::string_view text);

}  // namespace moraine
