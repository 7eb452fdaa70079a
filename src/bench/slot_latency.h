// SlotLatency: how long few tokens take to their experts and back, as a distribution: through slots
// (parallel/expert_slots.h) and by collectives, in turn.
//
//   dispatch_combine  each rank has tokens of its own, each for one expert; there is nothing to compute, so an answer
//                     is the row. Beside it counts, then two all-to-alls (parallel/expert_exchange.h)
//   share             each rank has all tokens and the answers of its experts; then all have all (as when decoding).
//                     Beside it an all-gather (parallel/expert_gather.h). Mean of one exchange for each rank, to which
//                     a single token belongs in turn
//
// A sample is rank 0's time of one exchange; an exchange waits for every rank. Blocks of both kinds take turns, so that
// what disturbs one disturbs the others.
#pragma once

#include <vector>

#include "bench/comm_measure.h"

namespace moraine {

// 1 to 128 tokens, bf16 rows of kSlotBenchWidth: rows of either operation, `tokens` of a rank, `seconds` through slots
// and `rival_seconds` by collectives, one per sample. Called by every rank; all get as many rows, rank 0 those that
// count.
constexpr int64_t kSlotBenchTokens = 128, kSlotBenchWidth = 2048;
std::vector<CommTimes> measure_slots(Transport& transport);

}  // namespace moraine
