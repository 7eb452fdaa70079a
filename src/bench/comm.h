// BenchComm: `moraine bench comm`: messages and collectives between ranks of this host, beside
// plain copies by as many threads, and beside Open MPI's own when mpirun started it.
//
// Without mpirun, ranks are processes, then threads. What is counted: bench/comm_measure.h.
//
// Output: tables on stdout, or with `json` one object per line:
//         {"bench":"comm","transport":...,"ranks":...,"operation":...,"bytes":...,"us":...,"p10":...,
//          "p90":...,"gb_s":...,"copy_gb_s":...,"percent":...,"open_mpi_us":...,"times_as_fast":...}
//         percent and times_as_fast are medians of pairs; zero where there is nothing to compare. Small messages
//         one way (bench/signal_latency.h): {"bench":"comm","operation":"put_signal","bytes":...,
//          "put_signal_p50_us":...,"put_signal_p99_us":...,"send_receive_p50_us":...,"send_receive_p99_us":...}
//         Few tokens (bench/slot_latency.h): {"bench":"comm","operation":"dispatch_combine" or "share","tokens":...,
//          "bytes":...,"slots_p50_us":...,"slots_p99_us":...,"collective_p50_us":...,"collective_p99_us":...}
// Errors: kPeerLost if a rank fails.
#pragma once

#include <cstdint>
#include <string>

namespace moraine {

struct BenchCommOptions {
  int ranks = 0;  // 0: one per usable core, at least 2. Under mpirun: its number
  bool json = false;
  std::string machine_file;  // gets the fitted curve; empty: none
};

void bench_comm(const BenchCommOptions& options);

}  // namespace moraine
