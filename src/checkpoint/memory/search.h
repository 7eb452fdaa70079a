// MemorySearch: the newest copy that all hosts' memory together still holds whole.
//
//   look    the first rank of each host verifies every file of every copy in its host's folder
//   choose  rank 0: the newest step of which each file is whole on some host, by one manifest
//   fetch   what a host lacks comes from a host that has it, file by file under its own name: a
//           crash leaves more of the copy than there was, never less
//
// Errors: kPeerLost. Damage is told to on_bad, on the first rank of its host, and is not an Error; nor
//         is a disk error while fetching: then there is no copy.
// Cost:   one pass over the bytes in memory; with several hosts, what is lacking goes to all.
#pragma once

#include <optional>
#include <string>

#include "base/file_system.h"
#include "checkpoint/history.h"
#include "comm/communicator.h"

namespace moraine {

// Collective. The directory of the copy on this host, now complete.
std::optional<std::string> newest_in_memory(Communicator& comm, FileSystem& fs,
                                            const std::string& run_root, const std::string& folder,
                                            const OnBadCheckpoint& on_bad);

}  // namespace moraine
