// One pass, a character at a time.
#include "base/printable.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace moraine {
namespace {

// C0 and DEL; C1 is two bytes, C2 80 to C2 9F.
bool is_control(std::string_view character) {
  const uint8_t first = static_cast<uint8_t>(character[0]);
  if (character.size() == 2) return first == 0xC2 && static_cast<uint8_t>(character[1]) < 0xA0;
  return character.size() == 1 && (first < 0x20 || first == 0x7F);
}

// U+061C, 200E, 200F, 202A to 202E, 2066 to 2069: they turn the direction in which what follows is shown.
bool is_direction(std::string_view character) {
  if (character == "\xD8\x9C") return true;
  if (character.size() != 3 || !character.starts_with("\xE2")) return false;
  const auto second = static_cast<uint8_t>(character[1]),
             third = static_cast<uint8_t>(character[2]);
  if (second == 0x80) return third == 0x8E || third == 0x8F || (third >= 0xAA && third <= 0xAE);
  return second == 0x81 && third >= 0xA6 && third <= 0xA9;
}

}  // namespace

std::string printable(std::string_view text, int64_t bytes_max) {
  std::string out;
  size_t at = 0;
  while (at < text.size() && static_cast<int64_t>(at) < bytes_max) {
    const int valid = utf8_sequence_bytes(text, static_cast<int64_t>(at));
    const std::string_view character = text.substr(at, valid > 0 ? static_cast<size_t>(valid) : 1);
    at += character.size();
    if (character == "\n") {
      out += "\\n";
    } else if (valid == 0 || is_control(character) || is_direction(character)) {
      for (const char c : character) out += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
    } else {
      out += character;
    }
  }
  if (at < text.size()) out += fmt::format(" ... ({} more bytes)", text.size() - at);
  return out;
}

}  // namespace moraine
