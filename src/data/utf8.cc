// One decoder of a single character, used by three loops.
#include "data/utf8.h"

#include <simdjson.h>

namespace moraine {
namespace {

// Bytes of the valid character at text[i]; 0 if there is none.
int valid_length(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) -> unsigned {
    return k < text.size() ? static_cast<unsigned char>(text[k]) : 0u;  // 0 continues nothing
  };
  const auto continues = [&](size_t k) { return (byte(k) & 0xC0u) == 0x80u; };
  const unsigned a = byte(i), b = byte(i + 1);
  if (a < 0x80) return 1;
  if (a >= 0xC2 && a <= 0xDF) return continues(i + 1) ? 2 : 0;
  if (a >= 0xE0 && a <= 0xEF) {
    if (a == 0xE0 && b < 0xA0) return 0;  // overlong
    if (a == 0xED && b > 0x9F) return 0;  // surrogate
    return continues(i + 1) && continues(i + 2) ? 3 : 0;
  }
  if (a >= 0xF0 && a <= 0xF4) {
    if (a == 0xF0 && b < 0x90) return 0;  // overlong
    if (a == 0xF4 && b > 0x8F) return 0;  // above U+10FFFF
    return continues(i + 1) && continues(i + 2) && continues(i + 3) ? 4 : 0;
  }
  return 0;
}

// U+10FF00 + byte is F4 8F BC..BF 80..BF: two bits of the byte, then six.
constexpr unsigned char kMark0 = 0xF4, kMark1 = 0x8F, kMark2 = 0xBC;

bool is_mark(std::string_view text, size_t i) {
  return i + 3 < text.size() && static_cast<unsigned char>(text[i]) == kMark0 &&
         static_cast<unsigned char>(text[i + 1]) == kMark1 &&
         static_cast<unsigned char>(text[i + 2]) >= kMark2;
}

}  // namespace

int64_t first_invalid_utf8(std::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return -1;
  for (size_t i = 0; i < text.size();) {
    const int length = valid_length(text, i);
    if (length == 0) return static_cast<int64_t>(i);
    i += static_cast<size_t>(length);
  }
  return -1;
}

int64_t count_invalid_utf8(std::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return 0;
  int64_t count = 0;
  for (size_t i = 0; i < text.size();) {
    const int length = valid_length(text, i);
    if (length == 0) ++count;
    i += static_cast<size_t>(length == 0 ? 1 : length);
  }
  return count;
}

std::string mark_invalid_utf8(std::string_view text) {
  std::string marked;
  marked.reserve(text.size() + 16);
  for (size_t i = 0; i < text.size();) {
    const int length = valid_length(text, i);
    if (length > 0) {
      marked.append(text.substr(i, static_cast<size_t>(length)));
      i += static_cast<size_t>(length);
      continue;
    }
    const unsigned byte = static_cast<unsigned char>(text[i++]);
    for (const unsigned c :
         {unsigned{kMark0}, unsigned{kMark1}, kMark2 | byte >> 6, 0x80u | (byte & 63)}) {
      marked.push_back(static_cast<char>(c));
    }
  }
  return marked;
}

std::string restore_invalid_utf8(std::string_view text) {
  std::string restored;
  restored.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    if (!is_mark(text, i)) {
      restored.push_back(text[i++]);
      continue;
    }
    const unsigned high = static_cast<unsigned char>(text[i + 2]) & 3u;
    restored.push_back(
        static_cast<char>(high << 6 | (static_cast<unsigned char>(text[i + 3]) & 63u)));
    i += 4;
  }
  return restored;
}

bool has_utf8_marks(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_mark(text, i)) return true;
    // \udbff followed by \udf00..\udfff is the same character as a JSON escape.
    if (text[i] == '\\' && i + 5 < text.size() && (text[i + 1] == 'u') &&
        (text[i + 2] | 32) == 'd' && (text[i + 3] | 32) == 'b' && (text[i + 4] | 32) == 'f' &&
        (text[i + 5] | 32) == 'f') {
      return true;
    }
  }
  return false;
}

}  // namespace moraine
