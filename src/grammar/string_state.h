// StringState: the place inside the characters of a JSON string, byte by byte.
//
//   whole characters of UTF-8 (shortest form, no surrogates); \" \\ \/ \b \f \n \r \t; \uXXXX, where
//   a high surrogate is followed by a low one, and both are one character
//
// Source: RFC 8259 section 7, RFC 3629 section 4.
#pragma once

#include <cstdint>

namespace moraine {

enum StringState : uint8_t {
  kBorder,  // between two characters
  kTail1,   // so many bytes of a character are missing
  kTail2,
  kTail3,
  kAfterE0,  // A0..BF, then one more
  kAfterEd,  // 80..9F, then one more
  kAfterF0,  // 90..BF, then two more
  kAfterF4,  // 80..8F, then two more
  kBackslash,
  kHex4,  // of \uXXXX: so many digits are missing
  kHex3,
  kHex2,
  kHex1,
  kHexAfterD,  // \ud
  kHigh2,      // of a high surrogate: so many digits are missing
  kHigh1,
  kLowBackslash,  // of a low surrogate: the backslash is missing, the u, ...
  kLowU,
  kLowD,
  kLowC,
  kBroken,  // no such string
};

constexpr bool is_hex_digit(uint8_t byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f') ||
         (byte >= 'A' && byte <= 'F');
}

// What follows at the border of two characters. Not for the closing quote: that is the caller's.
constexpr StringState string_character(uint8_t byte) {
  if (byte == '\\') return kBackslash;
  if (byte < 0x20 || byte == '"') return kBroken;
  if (byte < 0x80) return kBorder;
  if (byte < 0xC2 || byte > 0xF4) return kBroken;
  if (byte < 0xE0) return kTail1;
  if (byte == 0xE0) return kAfterE0;
  if (byte == 0xED) return kAfterEd;
  if (byte < 0xF0) return kTail2;
  if (byte == 0xF0) return kAfterF0;
  return byte == 0xF4 ? kAfterF4 : kTail3;
}

constexpr StringState string_escape(uint8_t byte) {
  switch (byte) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
      return kBorder;
    case 'u':
      return kHex4;
    default:
      return kBroken;
  }
}

constexpr StringState string_hex(StringState state, uint8_t byte) {
  if (!is_hex_digit(byte)) return kBroken;
  const uint8_t low = byte | 0x20;  // of a letter
  switch (state) {
    case kHex4:
      return low == 'd' ? kHexAfterD : kHex3;
    case kHexAfterD:
      if (byte <= '7') return kHex2;
      return byte <= '9' || low <= 'b' ? kHigh2 : kBroken;  // a low surrogate comes never first
    case kHex3:
      return kHex2;
    case kHex2:
      return kHex1;
    case kHex1:
      return kBorder;
    case kHigh2:
      return kHigh1;
    case kHigh1:
      return kLowBackslash;
    case kLowC:
      return low >= 'c' && low <= 'f' ? kHex2 : kBroken;
    default:
      return kBroken;
  }
}

constexpr StringState next_string_state(StringState state, uint8_t byte) {
  const bool tail = byte >= 0x80 && byte <= 0xBF;
  switch (state) {
    case kBorder:
      return string_character(byte);
    case kTail1:
      return tail ? kBorder : kBroken;
    case kTail2:
      return tail ? kTail1 : kBroken;
    case kTail3:
      return tail ? kTail2 : kBroken;
    case kAfterE0:
      return tail && byte >= 0xA0 ? kTail1 : kBroken;
    case kAfterEd:
      return tail && byte <= 0x9F ? kTail1 : kBroken;
    case kAfterF0:
      return tail && byte >= 0x90 ? kTail2 : kBroken;
    case kAfterF4:
      return tail && byte <= 0x8F ? kTail2 : kBroken;
    case kBackslash:
      return string_escape(byte);
    case kLowBackslash:
      return byte == '\\' ? kLowU : kBroken;
    case kLowU:
      return byte == 'u' ? kLowD : kBroken;
    case kLowD:
      return (byte | 0x20) == 'd' ? kLowC : kBroken;
    default:
      return string_hex(state, byte);
  }
}

}  // namespace moraine
