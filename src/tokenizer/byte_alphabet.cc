// The table of 256 characters and its inverse.
#include "tokenizer/byte_alphabet.h"

#include <array>

#include "base/utf8.h"

namespace moraine {
namespace {

constexpr int kCharacters = 0x100 + 68;

constexpr bool is_printable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

struct Alphabet {
  std::array<int32_t, 256> characters{};
  std::array<int, kCharacters> bytes{};

  constexpr Alphabet() {
    int32_t next = 0x100;
    for (int& byte : bytes) byte = -1;
    for (int byte = 0; byte < 256; ++byte) {
      characters[byte] = is_printable(byte) ? byte : next++;
      bytes[characters[byte]] = byte;
    }
  }
};

constexpr Alphabet kAlphabet;
static_assert(kAlphabet.characters[0xAD] == kCharacters - 1);

}  // namespace

int32_t character_of_byte(uint8_t byte) { return kAlphabet.characters[byte]; }

int byte_of_character(int32_t code_point) {
  return code_point < kCharacters ? kAlphabet.bytes[code_point] : -1;
}

void append_byte_characters(std::string_view bytes, std::string* out) {
  for (char byte : bytes) append_utf8(character_of_byte(static_cast<uint8_t>(byte)), out);
}

bool append_character_bytes(std::string_view text, std::string* out) {
  const size_t size_before = out->size();
  for (int64_t at = 0; at < static_cast<int64_t>(text.size());) {
    const int byte = byte_of_character(utf8_code_point(text, at));
    if (byte < 0) {
      out->resize(size_before);
      return false;
    }
    out->push_back(static_cast<char>(byte));
    at += utf8_bytes_of_lead(text[at]);
  }
  return true;
}

}  // namespace moraine
