// BenchRails: times our messages and raw streams by turns.
#include "bench/rails.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "bench/between_ranks.h"
#include "bench/raw_streams.h"
#include "comm/all_ranks.h"
#include "comm/collectives.h"
#include "comm/rails/rail_address.h"
#include "comm/rails_transport.h"
#include "kernels/peak.h"

namespace moraine {
namespace {

constexpr int64_t kWord = kAnswerBytes;  // there and back, halved
constexpr int64_t kSizes[] = {kWord, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
constexpr double kRailBurstSeconds = 0.1;

struct Row {
  int64_t bytes = 0;
  std::vector<double> ours, raw;  // seconds
};

double time_of(int64_t repetitions, const std::function<void()>& body) {
  const double begin = now_seconds();
  for (int64_t i = 0; i < repetitions; ++i) body();
  return (now_seconds() - begin) / static_cast<double>(repetitions);
}

Row measure(Communicator& comm, RawStreams& streams, int64_t bytes, int64_t rounds) {
  Row row{.bytes = bytes, .ours = {}, .raw = {}};
  std::vector<std::byte> data(static_cast<size_t>(bytes), std::byte{3});
  const auto ours = [&] { move_and_answer(comm, data); };
  const auto raw = [&] { bytes == kWord ? streams.ping() : streams.transfer(data); };
  std::vector<int64_t> repetitions = {
      std::clamp<int64_t>(static_cast<int64_t>(kRailBurstSeconds / time_of(3, ours)), 1, 1000)};
  broadcast(comm, 0, std::as_writable_bytes(std::span(repetitions)));
  raw();
  const double half = bytes == kWord ? 0.5 : 1;
  for (int64_t round = 0; round < rounds; ++round) {
    barrier(comm);
    row.ours.push_back(half * time_of(repetitions[0], ours));
    barrier(comm);
    row.raw.push_back(half * time_of(repetitions[0], raw));
  }
  return row;
}

void print_row(const Row& row, int rails, bool json) {
  std::vector<double> ratios;
  for (size_t i = 0; i < row.ours.size(); ++i) ratios.push_back(100 * row.raw[i] / row.ours[i]);
  const Spread ours = spread_of(row.ours), raw = spread_of(row.raw);
  const double percent = spread_of(ratios).median, bytes = static_cast<double>(row.bytes);
  if (json) {
    const Json line = {{"bench", "rails"},
                       {"rails", rails},
                       {"bytes", row.bytes},
                       {"us", 1e6 * ours.median},
                       {"p10", 1e6 * ours.p10},
                       {"p90", 1e6 * ours.p90},
                       {"raw_us", 1e6 * raw.median},
                       {"gb_s", 1e-9 * bytes / ours.median},
                       {"raw_gb_s", 1e-9 * bytes / raw.median},
                       {"percent", percent}};
    std::fputs((json_text(line) + "\n").c_str(), stdout);
    return;
  }
  fmt::print("{:>10}{:>11.1f}{:>11.1f}{:>11.1f}{:>11.1f}{:>9.2f}{:>9.2f}{:>7.0f} %\n", row.bytes,
             1e6 * ours.median, 1e6 * ours.p10, 1e6 * ours.p90, 1e6 * raw.median,
             1e-9 * bytes / ours.median, 1e-9 * bytes / raw.median, percent);
}

void bench_rank(const BenchRailsOptions& options) {
  setenv("MORAINE_HOST_MEMORY", "off", 1);
  const std::unique_ptr<Transport> transport =
      open_rails_transport({.rank = options.rank,
                            .ranks = 2,
                            .rendezvous = options.rendezvous,
                            .rails = options.rails,
                            .secret = options.sealed ? "frames that have tags" : ""});
  Communicator comm(*transport, all_ranks(*transport), 0, "rails", kBenchDeadline);
  RawStreams streams(*transport, options.rails);
  const bool is_first = options.rank == 0;
  if (is_first && !options.json)
    fmt::print(
        "{} rails, beside as many raw TCP streams\n{:>10}{:>11}{:>11}{:>11}{:>11}{:>9}{:>9}{:>9}\n",
        streams.count(), "bytes", "us", "p10", "p90", "raw us", "GB/s", "raw", "share");
  for (const int64_t bytes : kSizes) {
    const Row row = measure(comm, streams, bytes, options.rounds);
    if (is_first) print_row(row, streams.count(), options.json);
  }
}

void bench_two_processes(BenchRailsOptions options) {
  const bool has_rails = !options.rails.empty();
  options.rendezvous = free_local_address();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw_error(Code::kIo, "bench rails: start a second process");
  options.rank = child == 0 ? 1 : 0;
  // One core each, for both kinds: else the raw streams, whose ends sleep in one call, share a core that our ends do
  // not, and the other way round.
  bind_to_core(options.rank);
  if (!has_rails)
    options.rails = {fmt::format("127.0.1.{}", options.rank + 1),
                     fmt::format("127.0.2.{}", options.rank + 1)};
  if (child == 0) {
    int code = 0;
    try {
      bench_rank(options);
    } catch (const Error& e) {
      std::fprintf(stderr, "moraine bench rails: rank 1: %s\n", e.what());
      code = 1;
    }
    _exit(code);
  }
  bench_rank(options);
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0)
    throw_error(Code::kPeerLost, "bench rails: rank 1 failed");
}

}  // namespace

void bench_rails(const BenchRailsOptions& options) {
  if (options.lost_of > 0) return bench_rails_lost(options);
  if (options.rendezvous.empty()) return bench_two_processes(options);
  if (options.rank < 0 || options.rank > 1)
    throw_error(Code::kInvalidArgument,
                "bench rails --rendezvous: wanted --rank 0 here and --rank 1 there");
  if (options.rails.empty())
    throw_error(Code::kInvalidArgument,
                "bench rails --rendezvous: wanted --rails, once for each path");
  bench_rank(options);
}

}  // namespace moraine
