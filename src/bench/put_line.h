// PutLine: a line of a benchmark's answer, on standard output.
#pragma once

#include <cstdio>
#include <string>

namespace moraine {

inline void put_line(const std::string& line) { std::fputs((line + "\n").c_str(), stdout); }

// Into a file too, before what is measured next, which may take minutes and tells of its progress on standard error.
inline void put_now(const std::string& text) {
  put_line(text);
  std::fflush(stdout);
}

}  // namespace moraine
