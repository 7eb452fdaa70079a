// Names of error codes, as logs and --help print them.
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
  }
  return "unknown";
}

}  // namespace moraine
