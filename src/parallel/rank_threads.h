// RankThreads: how many threads a rank computes with.
#pragma once

#include <cstdint>

#include "comm/communicator.h"

namespace moraine {

// What was asked for; 0: the usable cores, divided among the ranks that have the same ones. Collective.
int rank_threads(int64_t wanted, Communicator& world);

}  // namespace moraine
