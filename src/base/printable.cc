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
    } else if (valid == 0 || is_control(character)) {
      for (const char c : character) out += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
    } else {
      out += character;
    }
  }
  if (at < text.size()) out += fmt::format(" ... ({} more bytes)", text.size() - at);
  return out;
}

}  // namespace moraine
