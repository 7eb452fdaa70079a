// Utf8: reading, writing and checking UTF-8 bytes.
//
// A valid sequence is as in RFC 3629: shortest form, no surrogates, at most U+10FFFF.
// Errors: none.
// Cost:   valid_utf8_prefix skips ASCII eight bytes at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moraine {

// Bytes of the valid sequence that starts at text[at]; 0 if there is none. at < text.size().
int utf8_sequence_bytes(std::string_view text, int64_t at);

// Bytes of the sequence whose first byte this is. Only for text known to be valid.
inline int utf8_bytes_of_lead(char lead) {
  const uint8_t byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// Whether it goes on with a character, and begins none.
inline bool is_utf8_trail(uint8_t byte) { return (byte & 0xC0) == 0x80; }

// The code point at text[at]. Only for text known to be valid.
int32_t utf8_code_point(std::string_view text, int64_t at);

// Where the code point that ends before `end` begins. Only for valid text; end > 0.
int64_t utf8_previous(std::string_view text, int64_t end);

void append_utf8(int32_t code_point, std::string* out);

// Length of the longest valid prefix.
int64_t valid_utf8_prefix(std::string_view text);

// Bytes at the end that may begin a sequence which is not complete yet (0 to 3).
int64_t incomplete_utf8_tail(std::string_view text);

// Every maximal invalid part becomes U+FFFD (the rule of the WHATWG and of Unicode 3.9).
std::string to_valid_utf8(std::string_view bytes);

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
