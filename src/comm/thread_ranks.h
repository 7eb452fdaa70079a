// ThreadRanks: ranks as threads of one process.
//
// Errors: if ranks fail, the Error that came first is thrown when all have ended (the others end
//         with kPeerLost because of it).
#pragma once

#include <functional>

#include "comm/transport.h"

namespace moraine {

// Calls body(transport) once for each rank, each in a thread of its own.
void run_thread_ranks(int ranks, const std::function<void(Transport& transport)>& body);

}  // namespace moraine
