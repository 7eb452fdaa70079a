// BenchRails: `moraine bench rails`: messages between two ranks over rails, beside as many raw TCP streams.
//
// Alone: two processes of this host, each bound to one core, over addresses of the loopback. With a rendezvous: rank 0
// or 1 of two, which another start of this command joins, for links between hosts or network namespaces.
//
// Every round times both, one after the other, for each size:
//   latency     8 bytes there and back, halved; raw: over the first stream
//   rate        from rank 0 to rank 1, which answers with 8 bytes when it has all; raw: the bytes divided among N
//               streams, each with a thread of its own at both ends
// and prints medians and the median of the ratios. Raw streams check nothing; rails hash every byte, and acknowledge.
//
// With `lost_of` N, which needs root: two network namespaces with N links of `link_mbit` each, of which one after the
// other is cut, each in another way (comm/rails/cut_links.h). Beside no raw streams, which would hang.
//   rate        of 16 MiB from rank 0 to rank 1 with 0, 1, ... N-1 links gone; against (N-k)/N of the rate of all N,
//               and against what N-k links are limited to
//
// Output: a table on stdout, or with `json` one object per line:
//         {"bench":"rails","rails":...,"bytes":...,"us":...,"p10":...,"p90":...,"raw_us":...,"gb_s":...,"raw_gb_s":...,
//          "percent":...}     percent: of the raw rate; of 8 bytes the raw time as a part of ours
//         {"bench":"rails-lost","rails":N,"lost":k,"us":...,"p10":...,"p90":...,"mb_s":...,"percent":...,
//          "percent_of_limit":...}
// Errors: those of open_rails_transport.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moraine {

struct BenchRailsOptions {
  int rank = 0;
  std::string rendezvous;          // empty: two processes of this host
  std::vector<std::string> rails;  // empty: two addresses of the loopback
  int64_t rounds = 7;
  bool json = false;
  bool sealed = false;  // frames have tags, as with a secret
  int64_t lost_of = 0, link_mbit = 200;
};

void bench_rails(const BenchRailsOptions& options);
void bench_rails_lost(const BenchRailsOptions& options);

}  // namespace moraine
