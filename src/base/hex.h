// Hex: hexadecimal digits.
#pragma once

namespace moraine {

// Of a digit in either case; -1 if it is none.
inline int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace moraine
