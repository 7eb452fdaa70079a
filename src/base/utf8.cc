// UTF-8 after table 3-7 of the Unicode standard.
#include "base/utf8.h"

#include <cstring>

namespace moraine {
namespace {

// Bytes that a sequence with this lead byte must have; 0 if it cannot lead.
int wanted_bytes(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 0;
}

// Whether `second` may follow `lead`: excludes long forms, surrogates and values past U+10FFFF.
bool is_second(uint8_t lead, uint8_t second) {
  if (!is_utf8_trail(second)) return false;
  if (lead == 0xE0) return second >= 0xA0;
  if (lead == 0xED) return second < 0xA0;
  if (lead == 0xF0) return second >= 0x90;
  if (lead == 0xF4) return second < 0x90;
  return true;
}

// Bytes at text[at] that are the beginning of some valid sequence: 0 if none, all of it if
// complete.
int matching_bytes(std::string_view text, int64_t at, int wanted) {
  const int64_t left = static_cast<int64_t>(text.size()) - at;
  if (wanted == 0) return 0;
  if (wanted == 1 || left < 2) return 1;
  if (!is_second(static_cast<uint8_t>(text[at]), static_cast<uint8_t>(text[at + 1]))) return 1;
  int count = 2;
  while (count < wanted && count < left && is_utf8_trail(static_cast<uint8_t>(text[at + count])))
    ++count;
  return count;
}

// U+10FF00 + byte is F4 8F BC..BF 80..BF: two bits of the byte, then six.
constexpr unsigned char kMark0 = 0xF4, kMark1 = 0x8F, kMark2 = 0xBC;

bool is_mark(std::string_view text, size_t i) {
  return i + 3 < text.size() && static_cast<unsigned char>(text[i]) == kMark0 &&
         static_cast<unsigned char>(text[i + 1]) == kMark1 &&
         static_cast<unsigned char>(text[i + 2]) >= kMark2;
}

}  // namespace

int utf8_sequence_bytes(std::string_view text, int64_t at) {
  const int wanted = wanted_bytes(static_cast<uint8_t>(text[at]));
  return matching_bytes(text, at, wanted) == wanted ? wanted : 0;
}

int32_t utf8_code_point(std::string_view text, int64_t at) {
  const auto byte = [&](int64_t i) { return static_cast<uint8_t>(text[at + i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return lead;
  if (lead < 0xE0) return (lead & 0x1F) << 6 | (byte(1) & 0x3F);
  if (lead < 0xF0) return (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  return (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
}

int64_t utf8_previous(std::string_view text, int64_t end) {
  int64_t at = end - 1;
  while (at > 0 && is_utf8_trail(static_cast<uint8_t>(text[at]))) --at;
  return at;
}

void append_utf8(int32_t code_point, std::string* out) {
  const auto put = [&](int32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

int64_t valid_utf8_prefix(std::string_view text) {
  const int64_t size = static_cast<int64_t>(text.size());
  int64_t at = 0;
  while (at < size) {
    uint64_t eight;
    if (at + 8 <= size) {
      std::memcpy(&eight, text.data() + at, 8);
      if ((eight & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    const int bytes = utf8_sequence_bytes(text, at);
    if (bytes == 0) return at;
    at += bytes;
  }
  return at;
}

int64_t incomplete_utf8_tail(std::string_view text) {
  const int64_t size = static_cast<int64_t>(text.size());
  for (int64_t back = 1; back <= 3 && back <= size; ++back) {
    const uint8_t byte = static_cast<uint8_t>(text[size - back]);
    if (is_utf8_trail(byte)) continue;
    const int wanted = wanted_bytes(byte);
    return wanted > back && matching_bytes(text, size - back, wanted) == back ? back : 0;
  }
  return 0;
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const int64_t valid = valid_utf8_prefix(bytes);
    out.append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    const int matching = matching_bytes(bytes, 0, wanted_bytes(static_cast<uint8_t>(bytes[0])));
    bytes.remove_prefix(matching > 0 ? matching : 1);
    append_utf8(0xFFFD, &out);
  }
  return out;
}

int64_t first_invalid_utf8(std::string_view text) {
  const int64_t valid = valid_utf8_prefix(text);
  return valid == static_cast<int64_t>(text.size()) ? -1 : valid;
}

int64_t count_invalid_utf8(std::string_view text) {
  int64_t count = 0;
  for (std::string_view rest = text; !rest.empty();) {
    rest.remove_prefix(static_cast<size_t>(valid_utf8_prefix(rest)));
    if (rest.empty()) break;
    rest.remove_prefix(1);
    ++count;
  }
  return count;
}

std::string mark_invalid_utf8(std::string_view text) {
  std::string marked;
  marked.reserve(text.size() + 16);
  for (size_t i = 0; i < text.size();) {
    const int length = utf8_sequence_bytes(text, static_cast<int64_t>(i));
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
