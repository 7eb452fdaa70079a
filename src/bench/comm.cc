// BenchComm: starts the ranks, prints their table and fits the curve of the machine file.
#include "bench/comm.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/pool.h"
#include "base/quantile.h"
#include "bench/comm_measure.h"
#include "bench/put_line.h"
#include "bench/signal_latency.h"
#include "bench/slot_latency.h"
#include "comm/mpi_transport.h"
#include "comm/process_ranks.h"
#include "comm/thread_ranks.h"
#include "kernels/peak.h"
#include "machine/machine.h"

namespace moraine {
namespace {

struct Table {
  std::string transport;
  int ranks;
  std::vector<CommTimes> rows;
  std::vector<CommTimes> small;  // distributions of what small messages take
};

std::vector<CommTimes> measure_small(Transport& transport) {
  std::vector<CommTimes> small = measure_signals(transport);
  for (CommTimes& row : measure_slots(transport)) small.push_back(std::move(row));
  return small;
}

// Median over the pairs of one run; 0 without pairs.
double paired_ratio(const std::vector<double>& above, const std::vector<double>& below) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(above.size(), below.size()); ++i)
    ratios.push_back(above[i] / below[i]);
  return spread_of(ratios).median;
}

double rate(const CommTimes& row, const std::vector<double>& seconds) {
  const double median = spread_of(seconds).median;
  return median > 0 ? row.delivered / median * 1e-9 : 0;
}

void print_row(const Table& table, const CommTimes& row, bool json) {
  const Spread s = spread_of(row.seconds);
  const double percent = 100 * paired_ratio(row.copy_seconds, row.seconds);
  const double faster = paired_ratio(row.rival_seconds, row.seconds);
  const double gb_s = rate(row, row.seconds), copy_gb_s = rate(row, row.copy_seconds);
  const double rival_us = 1e6 * spread_of(row.rival_seconds).median;
  if (json) {
    const Json line = {{"bench", "comm"},        {"transport", table.transport},
                       {"ranks", table.ranks},   {"operation", row.operation},
                       {"bytes", row.bytes},     {"us", 1e6 * s.median},
                       {"p10", 1e6 * s.p10},     {"p90", 1e6 * s.p90},
                       {"gb_s", gb_s},           {"copy_gb_s", copy_gb_s},
                       {"percent", percent},     {"open_mpi_us", rival_us},
                       {"times_as_fast", faster}};
    put_line(json_text(line));
    return;
  }
  std::string line = fmt::format("{:<16}{:>10}{:>11.2f}{:>11.2f}{:>11.2f}", row.operation,
                                 row.bytes, 1e6 * s.median, 1e6 * s.p10, 1e6 * s.p90);
  line += row.delivered > 0 ? fmt::format("{:>9.2f}{:>9.2f}{:>7.0f} %", gb_s, copy_gb_s, percent)
                            : fmt::format("{:>27}", "");
  if (!row.rival_seconds.empty()) line += fmt::format("{:>12.2f}{:>8.2f} x", rival_us, faster);
  put_line(line);
}

// Two ways of doing the same, as distributions.
struct TwoWays {
  const char *first, *second;  // in the table
  const char *first_key, *second_key;
  bool of_tokens;
};

void print_quantiles(const Table& table, const CommTimes& row, const TwoWays& ways, bool json) {
  const auto us = [](const std::vector<double>& seconds, double p) {
    return 1e6 * quantile_of(seconds, p);
  };
  const double first = us(row.seconds, 0.5), first_99 = us(row.seconds, 0.99);
  const double second = us(row.rival_seconds, 0.5), second_99 = us(row.rival_seconds, 0.99);
  if (json) {
    Json line = {{"bench", "comm"},
                 {"transport", table.transport},
                 {"ranks", table.ranks},
                 {"operation", row.operation},
                 {"bytes", row.bytes},
                 {std::string(ways.first_key) + "_p50_us", first},
                 {std::string(ways.first_key) + "_p99_us", first_99},
                 {std::string(ways.second_key) + "_p50_us", second},
                 {std::string(ways.second_key) + "_p99_us", second_99}};
    if (ways.of_tokens) line["tokens"] = row.tokens;
    put_line(json_text(line));
    return;
  }
  put_line(fmt::format("{:>10}{:>13.2f}{:>11.2f}{:>15.2f}{:>11.2f}",
                       ways.of_tokens ? row.tokens : row.bytes, first, first_99, second,
                       second_99));
}

void print_rows(const Table& table, const std::string& title, const char* operation,
                const TwoWays& ways, bool json) {
  if (!json)
    put_line(fmt::format("\n{}, {}, us\n{:>10}{:>13}{:>11}{:>15}{:>11}", title, table.transport,
                         ways.of_tokens ? "tokens" : "bytes", ways.first, "p99", ways.second,
                         "p99"));
  for (const CommTimes& row : table.small) {
    if (row.operation == operation) print_quantiles(table, row, ways, json);
  }
}

void print_small(const Table& table, bool json) {
  print_rows(table, "one way between ranks 0 and 1", "put_signal",
             {"put_signal", "send+receive", "put_signal", "send_receive", false}, json);
  const std::string rows = fmt::format("rows of {} bf16", kSlotBenchWidth);
  print_rows(table, "tokens of each rank to their experts and back, " + rows, "dispatch_combine",
             {"slots", "all-to-all", "slots", "collective", true}, json);
  print_rows(table, "answers of each rank to all, tokens of all, " + rows, "share",
             {"slots", "all-gather", "slots", "collective", true}, json);
}

void print_table(const Table& table, bool json) {
  if (!json) {
    put_line(fmt::format("\n{} ranks, {}", table.ranks, table.transport));
    put_line(fmt::format("{:<16}{:>10}{:>11}{:>11}{:>11}{:>9}{:>9}{:>9}{}", "operation", "bytes",
                         "us", "p10", "p90", "GB/s", "copy", "share",
                         table.rows.front().rival_seconds.empty() ? "" : "     Open MPI    ours"));
  }
  for (const CommTimes& row : table.rows) print_row(table, row, json);
  print_small(table, json);
}

// Buckets: `scale` times the row's bytes, as a bucket holds every rank's part.
std::vector<CommPoint> points_of(const Table& table, const char* operation, int scale) {
  std::vector<CommPoint> points;
  for (const CommTimes& row : table.rows) {
    if (row.operation == operation)
      points.push_back({row.bytes * scale, 1e6 * spread_of(row.seconds).median});
  }
  return points;
}

CommFit fit(const std::vector<CommPoint>& points) {
  std::vector<std::pair<double, double>> pairs;
  for (const CommPoint& p : points) pairs.emplace_back(static_cast<double>(p.bytes), p.us * 1e-6);
  return fit_comm(pairs);
}

CommLimits limits_of(const Table& table) {
  CommLimits c;
  c.ranks = table.ranks;
  c.transport = table.transport;
  c.messages = points_of(table, "message", 1);
  c.buckets = points_of(table, "bucket", table.ranks);
  const CommFit message = fit(c.messages), bucket = fit(c.buckets);
  c.message_latency_us = message.latency_seconds * 1e6;
  c.message_gb_s = message.bytes_per_second * 1e-9;
  c.bucket_latency_us = bucket.latency_seconds * 1e6;
  c.bucket_gb_s = bucket.bytes_per_second * 1e-9;
  return c;
}

void report_fit(const Table& table, const BenchCommOptions& options) {
  Machine machine;
  machine.comm = limits_of(table);
  const CommLimits c = machine.comm;
  if (!options.json) {
    put_line(
        fmt::format("\nfitted: message {:.2f} us + bytes / {:.2f} GB/s; bucket {:.2f} us + "
                    "bytes / {:.2f} GB/s; suggested bucket {} bytes",
                    c.message_latency_us, c.message_gb_s, c.bucket_latency_us, c.bucket_gb_s,
                    suggested_bucket_bytes(machine)));
  }
  if (options.machine_file.empty()) return;
  FileSystem& fs = posix_file_system();
  if (fs.exists(options.machine_file)) {
    machine = load_machine(fs, options.machine_file);
  } else {
    Pool pool(usable_cores());
    machine = measure_machine_quick(pool);
  }
  machine.comm = c;
  save_machine(fs, options.machine_file, machine);
}

void check_machine(const BenchCommOptions& options) {
  if (!options.machine_file.empty())
    check_machine_place(posix_file_system(), "bench comm --machine", options.machine_file);
}

void explain(const BenchCommOptions& options) {
  if (options.json) return;
  put_line(
      "bytes: per pair of ranks. GB/s: bytes delivered to all ranks (all_to_all: its own piece "
      "too),\ncounted once. copy: every rank copies as much within its own memory, counted once, "
      "in turns with\nthe operation. From 64 KiB on all of them walk through memory larger than "
      "the caches.");
}

bool has_mpirun() { return std::system("command -v mpirun >/dev/null 2>&1") == 0; }

void bench_under_mpi(const BenchCommOptions& options) {
  const auto transport = open_mpi_transport();
  const int ranks = transport->size();
  if (ranks < 2 || (options.ranks > 0 && options.ranks != ranks)) {
    throw_error(Code::kInvalidArgument,
                "bench comm: the launcher started {} rank{}; wanted mpirun -n {}, without --ranks",
                ranks, ranks == 1 ? "" : "s", std::max(2, options.ranks));
  }
  if (transport->rank() == 0) check_machine(options);
  CommMeasureOptions measure;
  measure.rival = true;
  const Table table = {transport->name(), ranks, measure_comm(*transport, measure),
                       measure_small(*transport)};
  if (transport->rank() != 0) return;
  explain(options);
  print_table(table, options.json);
  report_fit(table, options);
}

bool is_small(const CommTimes& row) {
  return row.operation == "put_signal" || row.operation == "dispatch_combine" ||
         row.operation == "share";
}

Table bench_processes(int ranks) {
  const auto outcomes = run_process_ranks(ranks, [](Transport& t) {
    std::vector<CommTimes> rows = measure_comm(t, CommMeasureOptions());
    for (CommTimes& small : measure_small(t)) rows.push_back(std::move(small));
    return comm_times_text(rows);
  });
  for (const RankOutcome& o : outcomes) {
    if (o.exit_code != 0) throw_error(Code::kPeerLost, "bench comm: a rank failed: {}", o.text);
  }
  Table table = {"process", ranks, {}, {}};
  for (CommTimes& row : parse_comm_times(outcomes[0].text))
    (is_small(row) ? table.small : table.rows).push_back(std::move(row));
  return table;
}

Table bench_threads(int ranks) {
  Table table = {"thread", ranks, {}, {}};
  run_thread_ranks(ranks, [&table](Transport& t) {
    std::vector<CommTimes> rows = measure_comm(t, CommMeasureOptions());
    std::vector<CommTimes> small = measure_small(t);
    if (t.rank() != 0) return;
    table.rows = std::move(rows), table.small = std::move(small);
  });
  return table;
}

}  // namespace

void bench_comm(const BenchCommOptions& options) {
  if (started_by_mpi()) {
    bench_under_mpi(options);
    return;
  }
  const int ranks = options.ranks > 0 ? options.ranks : std::max(2, usable_cores());
  if (ranks < 2)
    throw_error(Code::kInvalidArgument, "bench comm: --ranks {}: wanted 2 or more", ranks);
  check_machine(options);
  explain(options);
  const Table processes = bench_processes(ranks);  // forks: before there are threads
  print_table(processes, options.json);
  print_table(bench_threads(ranks), options.json);
  report_fit(processes, options);
  if (!options.json && has_mpirun()) {
    put_line(
        fmt::format("\nbeside Open MPI's own collectives: mpirun -n {} moraine bench comm", ranks));
  }
}

}  // namespace moraine
