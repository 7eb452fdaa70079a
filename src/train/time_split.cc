// One row of text for each row of a profile.
#include "train/time_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace moraine {

RankLimits rank_limits(const Machine& machine, int threads, bool bf16) {
  const double share =
      machine.threads > threads ? static_cast<double>(threads) / machine.threads : 1.0;
  return {.flops_s = 1e9 * share * matmul_gflops(machine, bf16),
          .bytes_s = 1e9 * std::max(machine.read_gb_s, machine.copy_gb_s),
          .integer_ops_s = 1e9 * share * machine.int8_gops};
}

namespace {

double arithmetic_seconds(const Profile::Row& row, const RankLimits& limits) {
  if (limits.flops_s <= 0) return 0;
  const double integers_s = limits.integer_ops_s > 0 ? limits.integer_ops_s : limits.flops_s;
  return (row.flops - row.integer_ops) / limits.flops_s + row.integer_ops / integers_s;
}

}  // namespace

double arithmetic_seconds(std::span<const Profile::Row> rows, const RankLimits& limits) {
  double seconds = 0;
  for (const Profile::Row& row : rows) seconds += arithmetic_seconds(row, limits);
  return seconds;
}

Floor floor_of(const Profile::Row& row, const RankLimits& limits) {
  const double flops = arithmetic_seconds(row, limits),
               bytes = limits.bytes_s > 0 ? row.bytes / limits.bytes_s : 0;
  if (row.span != Span::kOperation || (flops <= 0 && bytes <= 0)) return {};
  if (flops >= bytes) return {.seconds = flops, .bound = Bound::kFlops};
  return {.seconds = bytes, .bound = Bound::kBytes};
}

TimeSplit split_time(std::span<const Profile::Row> rows, const RankLimits& limits) {
  TimeSplit split;
  for (const Profile::Row& row : rows) {
    split.seconds += row.seconds;
    const Floor floor = floor_of(row, limits);
    if (row.span == Span::kRanks) {
      split.ranks += row.seconds;
    } else if (row.span == Span::kPhase) {
      split.phases += row.seconds;
    } else if (floor.bound == Bound::kFlops) {
      split.flops_bound += row.seconds;
      split.flops_bound_floor += floor.seconds;
    } else if (floor.bound == Bound::kBytes) {
      split.bytes_bound += row.seconds;
      split.bytes_bound_floor += floor.seconds;
    } else {
      split.no_floor += row.seconds;
    }
  }
  return split;
}

void merge_rows(std::vector<Profile::Row>& all, std::span<const Profile::Row> more) {
  for (const Profile::Row& row : more) {
    const auto same = std::find_if(all.begin(), all.end(), [&](const Profile::Row& r) {
      return std::strcmp(r.name, row.name) == 0;
    });
    if (same == all.end()) {
      all.push_back(row);
      continue;
    }
    same->calls += row.calls;
    same->seconds += row.seconds;
    same->seconds_whole += row.seconds_whole;
    same->flops += row.flops;
    same->integer_ops += row.integer_ops;
    same->bytes += row.bytes;
  }
}

Profile::Row row_of(std::span<const Profile::Row> rows, const char* name) {
  for (const Profile::Row& row : rows) {
    if (std::strcmp(row.name, name) == 0) return row;
  }
  return {.name = name};
}

namespace {

// What a phase's own seconds are, without the operations in it.
struct PhaseLabel {
  const char *phase, *label;
};
constexpr PhaseLabel kPhaseLabels[] = {{"step", "(between the parts of a step)"},
                                       {"forward", "(between operations of forward)"},
                                       {"backward", "(between operations of backward)"},
                                       {"recompute", "(between operations of recompute)"},
                                       {"optimizer", "(between operations of optimizer)"},
                                       {"verify", "checks for wrong bits"},
                                       {"data", "loading data"},
                                       {"checkpoint", "checkpoints"},
                                       {"validation", "validation"},
                                       {"sample", "samples"},
                                       {"storage", "probe of the storage"}};

}  // namespace

std::string row_label(const Profile::Row& row) {
  if (row.span != Span::kPhase) return row.name;
  for (const PhaseLabel& l : kPhaseLabels) {
    if (std::strcmp(l.phase, row.name) == 0) return l.label;
  }
  return row.name;
}

namespace {

std::string timed(const std::string& name, int64_t calls, double seconds, double all) {
  return fmt::format("{:<34} {:>8} {:>10.2f} {:>6.1f}%", name, calls, seconds * 1e3,
                     all > 0 ? 100 * seconds / all : 0);
}

std::string integer_peak(const RankLimits& limits) {
  if (limits.integer_ops_s <= 0) return ", which integers are held against too";
  return fmt::format(", {:.1f} Gop/s of integers", limits.integer_ops_s / 1e9);
}

std::string operation_line(const Profile::Row& row, const RankLimits& limits, double all) {
  const Floor floor = floor_of(row, limits);
  std::string line = timed(row.name, row.calls, row.seconds, all) +
                     fmt::format(" {:>9.1f} {:>7.1f}", row.flops / row.seconds / 1e9,
                                 row.bytes / row.seconds / 1e9);
  if (floor.bound == Bound::kNothing) return line + "\n";
  return line + fmt::format(" {:>10.2f} {:<5} {:>7.1f}\n", floor.seconds * 1e3,
                            floor.bound == Bound::kFlops ? "flops" : "bytes",
                            row.seconds / floor.seconds);
}

// "floor of bytes: 25.0% of the time, 1.6 x floor"; empty: nothing is bound so.
std::string bound_text(const char* by, double seconds, double floor, double all) {
  if (!(seconds > 0 && floor > 0)) return "";
  return fmt::format("floor of {}: {:.1f}% of the time, {:.1f} x floor; ", by, 100 * seconds / all,
                     seconds / floor);
}

}  // namespace

std::string time_table(std::span<const Profile::Row> rows, const RankLimits& limits) {
  const TimeSplit split = split_time(rows, limits);
  std::vector<Profile::Row> sorted(rows.begin(), rows.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const Profile::Row& a, const Profile::Row& b) {
    return a.span != b.span ? a.span < b.span : a.seconds > b.seconds;
  });
  std::string text =
      fmt::format("{:<34} {:>8} {:>10} {:>7} {:>9} {:>7} {:>10} {:<5} {:>7}\n", "operation",
                  "calls", "ms", "time%", "GFLOP/s", "GB/s", "floor ms", "of", "x floor");
  for (const Profile::Row& row : sorted) {
    text += row.span == Span::kOperation
                ? operation_line(row, limits, split.seconds)
                : timed(row_label(row), row.calls, row.seconds, split.seconds) + "\n";
  }
  text += timed("all", 1, split.seconds, split.seconds) + "\n";
  const bool has_integers = std::any_of(rows.begin(), rows.end(),
                                        [](const Profile::Row& r) { return r.integer_ops > 0; });
  text += bound_text("flops", split.flops_bound, split.flops_bound_floor, split.seconds);
  text += bound_text("bytes", split.bytes_bound, split.bytes_bound_floor, split.seconds);
  return text + fmt::format("measured: {:.1f} GFLOP/s{}, {:.1f} GB/s\n", limits.flops_s / 1e9,
                            has_integers ? integer_peak(limits) : "", limits.bytes_s / 1e9);
}

}  // namespace moraine
