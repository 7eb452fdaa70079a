// PutLine: a line of a benchmark's answer, on standard output.
#pragma once

#include <cstdio>
#include <string>

namespace moraine {

inline void put_line(const std::string& line) { std::fputs((line + "\n").c_str(), stdout); }

}  // namespace moraine
