// HostMemory: what ranks of a host have for what they are about to take together.
#pragma once

#include <cstdint>

#include "comm/communicator.h"

namespace moraine {

// Bytes that are free on this host before any rank of `world` goes on to take some. Collective.
int64_t free_before_taking(Communicator& world);

}  // namespace moraine
