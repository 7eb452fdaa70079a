// The names of error codes, as logs and --help print them, and the one place that formats a message.
#include "base/error.h"

namespace moraine {

const char* code_name(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "invalid_argument";
    case Code::kNotFound:
      return "not_found";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kIo:
      return "io";
    case Code::kDiverged:
      return "diverged";
    case Code::kPeerLost:
      return "peer_lost";
    case Code::kTimeout:
      return "timeout";
    case Code::kDevice:
      return "device";
    case Code::kInterrupted:
      return "interrupted";
    case Code::kOverloaded:
      return "overloaded";
    case Code::kRankDiverged:
      return "rank_diverged";
  }
  return "unknown";
}

void throw_formatted(Code code, fmt::string_view format, fmt::format_args args) {
  throw Error(code, fmt::vformat(format, args));
}

}  // namespace moraine
