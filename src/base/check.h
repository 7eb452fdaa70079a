// MR_CHECK: our own bugs stop the program, in release builds too.
//
//   MR_CHECK(T > 0);
//   MR_CHECK(T > 0, "T=%ld", long(T));
//
// Never reachable by user input: that is an Error (base/error.h).
#pragma once

namespace moraine {

[[noreturn]] [[gnu::format(printf, 4, 5)]] void check_failed(const char* file, int line,
                                                             const char* condition,
                                                             const char* format, ...);

}  // namespace moraine

#define MR_CHECK(condition, ...)                                               \
  do {                                                                         \
    if (!(condition)) [[unlikely]]                                             \
      ::moraine::check_failed(__FILE__, __LINE__, #condition, "" __VA_ARGS__); \
  } while (false)

#ifdef NDEBUG
#define MR_DCHECK(condition, ...) \
  do {                            \
  } while (false)
#else
#define MR_DCHECK(condition, ...) MR_CHECK(condition, __VA_ARGS__)
#endif
