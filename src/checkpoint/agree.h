// Agree: one round after which all ranks know the same outcome.
//
//   act     every rank does its part and says what came of it
//   decide  rank 0 hears all of them and answers
// If either fails anywhere, every rank throws the same Error, which names the ranks that failed. So
// no rank goes on alone, and none waits for one that has given up.
//
// Errors: of act and decide (the code is that of the lowest rank that failed); kPeerLost of the
//         communicator, at once and unchanged.
// Cost:   one gather, one broadcast.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace moraine {

using Act = std::function<std::string()>;
using Decide = std::function<std::string(const std::vector<std::string>& said)>;

// Collective. Returns the answer of rank 0. Neither function may use `comm`.
std::string agree(Communicator& comm, const Act& act, const Decide& decide);

// A decision that only hears whether all went well.
inline std::string no_decision(const std::vector<std::string>&) { return ""; }

// Collective: `text` of rank 0, everywhere.
std::string broadcast_text(Communicator& comm, const std::string& text);

}  // namespace moraine
