// TestText: what tests ask of a log or a page.
#pragma once

#include <cstdint>
#include <string>

namespace moraine::testing {

// How often `what` stands in it.
inline int64_t count(const std::string& text, const std::string& what) {
  int64_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

}  // namespace moraine::testing
