// EndBy: how a rank that ends by an Error takes the others with it.
#pragma once

#include "base/error.h"
#include "comm/transport.h"

namespace moraine {

// The others hear of it at once, unless the Error is one by which all end at the same place (a signal, a run that
// diverged).
inline void end_by(Transport& transport, const Error& e) {
  if (e.code() == Code::kInterrupted || e.code() == Code::kDiverged) {
    transport.end_together();
  } else {
    transport.fail(e.what());
  }
}

}  // namespace moraine
