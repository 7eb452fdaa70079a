// Byte alphabet: the printable character that stands for each byte in a byte-level vocabulary.
//
// Printable Latin-1 bytes stand for themselves; the other 68 are U+0100, U+0101, ... in order.
// Source: GPT-2, encoder.py.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moraine {

int32_t character_of_byte(uint8_t byte);
int byte_of_character(int32_t code_point);  // -1 if it stands for none

// Every byte replaced by its character.
void append_byte_characters(std::string_view bytes, std::string* out);

// The inverse. False (and `out` as it was) if some character stands for no byte. Valid UTF-8 only.
bool append_character_bytes(std::string_view text, std::string* out);

}  // namespace moraine
