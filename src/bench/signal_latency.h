// SignalLatency: how long a small message takes from one rank to another, as a distribution: a put with a signal
// (comm/window.h) and a send that is received, in turn.
//
// A sample is half of a way there and back between ranks 0 and 1; blocks of both kinds take turns, so that what
// disturbs one disturbs the other. Both ends wait as ranks do: spinning for a little, then asleep.
#pragma once

#include <vector>

#include "bench/comm_measure.h"

namespace moraine {

// 64 bytes to 16 KiB: rows of operation "put_signal", whose `seconds` are those of puts and whose `rival_seconds` are
// those of send and receive, one per sample. Called by every rank; rank 0 gets the rows.
std::vector<CommTimes> measure_signals(Transport& transport);

}  // namespace moraine
