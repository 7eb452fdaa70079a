// CommMeasure: times of messages and collectives on the ranks of a transport, beside copies.
//
// Every repetition of `bytes` per pair of ranks:
//   message        rank 2i to 2i + 1 and back, halved       delivers bytes
//   all_gather     every rank gives bytes to every other     ranks * (ranks - 1) * bytes
//   all_to_all     other bytes for each, itself included     ranks * ranks * bytes
//   reduce_scatter f32; every rank owns the sum of bytes     ranks * (ranks - 1) * bytes
//   bucket         the same, through a CommStream            ranks * (ranks - 1) * bytes
//   barrier                                                  0
//   copy           every rank copies its share of that from its own memory to its own memory
// A message's copy is that of one thread. The rate counts delivered (for copy: copied) bytes once,
// over all ranks. From kColdBytes on, repetitions walk through memory larger than the caches,
// copies and Open MPI's as well.
//
// A sample is a burst of repetitions between barriers, the slowest rank's time. Copy, ours and Open
// MPI's take turns, so that what disturbs one disturbs the others. A burst of any of them in which
// the system took a rank's core away is taken again, up to 3 times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/transport.h"

namespace moraine {

constexpr int64_t kColdBytes = 64 << 10;

struct CommTimes {
  std::string operation;
  int64_t bytes = 0;                       // per pair of ranks
  double delivered = 0;                    // bytes of a repetition, all ranks
  std::vector<double> seconds = {};        // ours, per repetition
  std::vector<double> copy_seconds = {};   // of copying as much; empty for barrier and bucket
  std::vector<double> rival_seconds = {};  // Open MPI's own; empty if it is not running
  int64_t tokens = 0;                      // of a rank (bench/slot_latency.h)
};

struct CommMeasureOptions {
  int64_t most_bytes = 16 << 20;
  bool rival = false;  // the transport is Open MPI's: time its collectives too
  int samples = 15;
};

// Called by every rank; all get the same table.
std::vector<CommTimes> measure_comm(Transport& transport, const CommMeasureOptions& options);

// seconds(bytes) = latency + bytes / rate, by least squares of the relative error.
struct CommFit {
  double latency_seconds = 0, bytes_per_second = 0;
};
CommFit fit_comm(const std::vector<std::pair<double, double>>& bytes_and_seconds);

// A table as text and back, for ranks that are processes.
std::string comm_times_text(const std::vector<CommTimes>& table);
std::vector<CommTimes> parse_comm_times(const std::string& text);

}  // namespace moraine
