// SimulateCluster: a run on many hosts by discrete events: faults, rails that come and go, and hosts that are slow.
//
//   interruption  of a rank, a host, or all rails of a host: back to the last whole snapshot, after detection and
//                 restart
//   a rail lost   a gap; until it is repaired the part of a step that waits for other hosts takes N / (N - k) times
//                 as long on the host that has lost most, k of its N, and everybody waits for that host
//   a slow host   for a while all steps take `slow_factor` times as long: every step ends with the slowest rank
//   snapshots     every `every` seconds of work, as in reliability.h
//
// Without slow hosts, and with no share that waits, that is the model of reliability.h; without failures the number of
// slow hosts is Poisson: tests hold both.
// Same seed, same answer. Cost: about a microsecond an event.
// Errors: those of expect_reliability; kInvalidArgument for a slow_factor below 1 or a share out of [0, 1].
#pragma once

#include "plan/reliability.h"

namespace moraine {

struct ClusterFaults {
  ReliabilityInputs parts;
  double slow_mtbf = 0;     // of one host, until it is slow; 0: never
  double slow_seconds = 0;  // that it stays so, mean
  double slow_factor = 1;
  double rail_share = 0;  // of a step that waits for other hosts
};

struct SimulatedCluster {
  double useful = 0,
         useful_error = 0;  // share of the time that is work at full speed; standard error
  double slow = 0;          // share that was lost to slow hosts and lost rails
  int64_t interruptions = 0, gaps = 0, slow_hosts = 0;
  double seconds = 0;
};
// Until so many interruptions, or `most_seconds`.
SimulatedCluster simulate_cluster(const ClusterFaults& faults, int64_t interruptions,
                                  double most_seconds, uint64_t seed);

}  // namespace moraine
