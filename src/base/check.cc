// Prints a failed check with its place, then aborts.
#include "base/check.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace moraine {

void check_failed(const char* file, int line, const char* condition, const char* format, ...) {
  std::fprintf(stderr, "%s:%d: check failed: %s", file, line, condition);
  if (format[0] != '\0') {
    std::fprintf(stderr, ": ");
    va_list args;
    va_start(args, format);
    std::vfprintf(stderr, format, args);
    va_end(args);
  }
  std::fprintf(stderr, "\nThis is a bug in moraine, not in your input. Please report it.\n");
  std::abort();
}

}  // namespace moraine
