// BenchRailsLost: the rate of N limited links of which one after the other is cut.
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "bench/between_ranks.h"
#include "bench/rails.h"
#include "comm/all_ranks.h"
#include "comm/collectives.h"
#include "comm/rails/cut_links.h"
#include "comm/rails_transport.h"
#include "kernels/peak.h"

namespace moraine {
namespace {

constexpr int64_t kBytes = 16 << 20;
constexpr int kWarmUps = 2;  // the cut is noticed, the windows of TCP are open

// Rank 0 asks for the next cut and waits until it is done; the process that has the links answers.
struct Asking {
  int ask[2] = {-1, -1}, answer[2] = {-1, -1};
};

void ask_for_cut(const Asking& a) {
  char word = 'c';
  const bool ok = write(a.ask[1], &word, 1) == 1 && read(a.answer[0], &word, 1) == 1;
  if (!ok) throw_error(Code::kIo, "bench rails: the process that cuts links is gone");
}

struct LostRow {
  int64_t lost = 0;
  Spread seconds = {}, all = {};  // all: with no link lost
};

void print_row(const BenchRailsOptions& o, const LostRow& row) {
  const double left = static_cast<double>(o.lost_of - row.lost);
  const double due = left / static_cast<double>(o.lost_of), bytes = static_cast<double>(kBytes);
  const double percent = 100 * row.all.median / row.seconds.median / due;
  const double limit = left * static_cast<double>(o.link_mbit) * 1e6 / 8;
  const double of_limit = 100 * bytes / row.seconds.median / limit;
  if (o.json) {
    const Json line = {{"bench", "rails-lost"},
                       {"rails", o.lost_of},
                       {"lost", row.lost},
                       {"us", 1e6 * row.seconds.median},
                       {"p10", 1e6 * row.seconds.p10},
                       {"p90", 1e6 * row.seconds.p90},
                       {"mb_s", 1e-6 * bytes / row.seconds.median},
                       {"percent", percent},
                       {"percent_of_limit", of_limit}};
    std::fputs((json_text(line) + "\n").c_str(), stdout);
  } else {
    fmt::print("{:>6}{:>10.1f}{:>10.1f}{:>10.1f}{:>9.1f}{:>11.0f} %{:>11.0f} %\n", row.lost,
               1e3 * row.seconds.median, 1e3 * row.seconds.p10, 1e3 * row.seconds.p90,
               1e-6 * bytes / row.seconds.median, percent, of_limit);
  }
  std::fflush(stdout);
}

void measure_rank(const BenchRailsOptions& o, const Asking& asking, int rank) {
  RailsOptions options;
  options.rank = rank;
  options.ranks = 2;
  options.rendezvous = "10.77.0.1:7070";
  for (int64_t link = 0; link < o.lost_of; ++link)
    options.rails.push_back(fmt::format("10.77.{}.0/24", link));
  const std::unique_ptr<Transport> transport = open_rails_transport(options);
  Communicator comm(*transport, all_ranks(*transport), 0, "rails", kBenchDeadline);
  std::vector<std::byte> data(static_cast<size_t>(kBytes), std::byte{3});
  LostRow row;
  for (row.lost = 0; row.lost < o.lost_of; ++row.lost) {
    if (row.lost > 0 && rank == 0) ask_for_cut(asking);
    std::vector<double> seconds;
    for (int64_t round = -kWarmUps; round < o.rounds; ++round) {
      barrier(comm);
      const double begin = now_seconds();
      move_and_answer(comm, data);
      if (round >= 0) seconds.push_back(now_seconds() - begin);
    }
    row.seconds = spread_of(seconds);
    if (row.lost == 0) row.all = row.seconds;
    if (rank == 0) print_row(o, row);
  }
}

pid_t start_rank(const BenchRailsOptions& o, const CutLinks& links, const Asking& asking,
                 int rank) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) throw_error(Code::kIo, "bench rails: start a process");
  if (pid > 0) return pid;
  close(asking.ask[0]);
  close(asking.answer[1]);
  links.enter(rank);
  int code = 0;
  try {
    measure_rank(o, asking, rank);
  } catch (const Error& e) {
    std::fprintf(stderr, "moraine bench rails: rank %d: %s\n", rank, e.what());
    code = 1;
  }
  _exit(code);
}

}  // namespace

void bench_rails_lost(const BenchRailsOptions& o) {
  const int count = static_cast<int>(o.lost_of);
  CutLinks links(count);
  for (int link = 0; link < count; ++link) links.limit(link, o.link_mbit);
  if (!links.problem().empty())
    throw_error(Code::kIo, "bench rails --lost-of {}: {}", count, links.problem());
  setenv("MORAINE_HOST_MEMORY", "off", 1);
  Asking asking;
  if (pipe(asking.ask) != 0 || pipe(asking.answer) != 0)
    throw_error(Code::kIo, "bench rails: make a pipe");
  if (!o.json)
    fmt::print("{} links of {} Mb/s, 16 MiB\n{:>6}{:>10}{:>10}{:>10}{:>9}{:>13}{:>13}\n", count,
               o.link_mbit, "lost", "ms", "p10", "p90", "MB/s", "of (N-k)/N", "of limit");
  const pid_t ranks[] = {start_rank(o, links, asking, 0), start_rank(o, links, asking, 1)};
  close(asking.ask[1]);
  close(asking.answer[0]);
  // From the last link to the second one; the rendezvous is over the first.
  char word;
  for (int link = count - 1; read(asking.ask[0], &word, 1) == 1; --link) {
    links.cut(link, kAllCuts[link % std::ssize(kAllCuts)], 0);  // what rank 0 sends
    if (write(asking.answer[1], &word, 1) != 1) break;
  }
  int status = 0, failed = 0;
  for (const pid_t pid : ranks) failed += waitpid(pid, &status, 0) != pid || status != 0;
  if (failed > 0) throw_error(Code::kPeerLost, "bench rails: {} of 2 ranks failed", failed);
}

}  // namespace moraine
