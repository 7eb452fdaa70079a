// BetweenRanks: what benchmarks of messages between ranks share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"

namespace moraine {

constexpr double kBenchDeadline = 60;          // seconds that a rank waits for another
constexpr int kBenchBlocks = 20, kBlock = 50;  // blocks by turns of each kind; samples of a block

// To core `rank` of those that this process may use, and on from the first behind the last, as mpirun does: so that two
// ranks do not share a core while another is idle. Nothing where it has one core.
void bind_to_core(int rank);

// Of two ranks: rank 0's bytes to rank 1, which answers a word.
constexpr int64_t kAnswerBytes = 8;
void move_and_answer(Communicator& comm, std::vector<std::byte>& data);

}  // namespace moraine
