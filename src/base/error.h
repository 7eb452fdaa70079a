// Error: what the world did wrong, with the decision that follows from it.
//
// Thrown where it is found. main turns it into the exit code, 10 + code. On the way it is caught only to
// name what the thrower cannot know (the file, the key), to carry it to another thread or to the other
// ranks, or where failure is one of the answers (a damaged checkpoint among several, a save that is
// tried again). A message has three parts: what we were doing, what we found, what we wanted. Our own
// bugs are MR_CHECK (base/check.h), never an Error.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace moraine {

// Each value is a decision of the person or the supervisor that reads it.
enum class Code {
  kInvalidArgument = 0,  // flag, config, request: stop and tell a person
  kNotFound = 1,         // file, tensor, step: stop and tell a person
  kCorrupt = 2,          // checksum, format, cut file: take the checkpoint before
  kIo = 3,               // disk full, permission, read error: look at the disk
  kDiverged = 4,         // NaN, loss spike: reload and skip data
  kPeerLost = 5,         // a rank is gone: regroup and reload
  kTimeout = 6,          // a deadline passed: regroup and reload
  kDevice = 7,           // device fault: exclude the node
  kInterrupted = 8,      // SIGTERM, SIGINT or time limit: state is saved, run again to go on
  kOverloaded = 9,       // more work than the limits allow: try again later
  kRankDiverged = 10,    // this rank has other bits than it must have: look at its host
};

constexpr int kExitOk = 0;
constexpr int kExitUsage = 2;
inline int exit_code(Code code) { return 10 + static_cast<int>(code); }
const char* code_name(Code code);

class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

[[noreturn]] void throw_formatted(Code code, fmt::string_view format, fmt::format_args args);

// throw_error(Code::kCorrupt, "read {}: checksum {:x}, wanted {:x}", path, got, want)
template <class... Args>
[[noreturn]] void throw_error(Code code, fmt::format_string<Args...> format, Args&&... args) {
  throw_formatted(code, format, fmt::make_format_args(args...));
}

}  // namespace moraine
