// Agent: the hand of a supervisor on another host; it starts and watches the ranks of that host for it.
//
// Orders come on stdin, reports go to stdout (host_wire.h). It decides nothing. When its stdin ends, so does it, and
// the ranks go on; the next one finds them by what they have left in `folder`, ends the one before if it is there
// still, and ends all ranks that it is not told to follow.
//
// Errors:  kIo where the folder cannot be written; kNotFound where the supervisor's own is not seen.
// Threads: one; the caller has no other (fork).
#pragma once

#include <string>

namespace moraine {

void run_agent(const std::string& folder);

}  // namespace moraine
