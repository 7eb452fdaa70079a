// Doorbell: sleeping until another rank has something for this one.
//
// One futex word per rank counts its events. A waiter reads it, looks for what it waits for, and
// sleeps only if the word has not moved since; so no event is lost. Works between processes.
#pragma once

#include <atomic>
#include <cstdint>

#include "comm/host_region.h"

namespace moraine {

// Tells `rank` that something changed; wakes it only if somebody sleeps.
void ring_doorbell(RankRecord& rank);

// Sleeps until the word is not `seen` any more, or for about `seconds`.
void sleep_on_doorbell(RankRecord& rank, uint32_t seen, double seconds);

}  // namespace moraine
