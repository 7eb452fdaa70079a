// BenchGrowth: one short run for each value, from the same config.
#include "bench/growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <optional>

#include "base/chart_page.h"
#include "base/check_place.h"
#include "base/error.h"
#include "base/json.h"
#include "base/pool.h"
#include "bench/put_line.h"
#include "machine/machine.h"
#include "train/auto_dtype.h"
#include "train/time_split.h"

namespace moraine {
namespace {

// One thing that grows, and the assignments that give it a value.
struct Sweep {
  std::string name;
  int64_t first, last;
  std::function<std::vector<std::string>(int64_t)> set;
  std::vector<int64_t> values = {};  // that are wanted
};

std::vector<Sweep> all_sweeps() {
  using Assignments = std::vector<std::string>;
  return {{"sequence", 1024, 32768,
           [](int64_t v) {
             return Assignments{"train.slots=1", "train.micro_sequences=1",
                                fmt::format("train.sequence={}", v), "train.batch_tokens=32768"};
           }},
          {"experts", 4, 256,
           [](int64_t v) { return Assignments{fmt::format("model.experts={}", v)}; }},
          {"batch", 2048, 65536,
           [](int64_t v) {
             return Assignments{"train.slots=1", "train.sequence=512", "train.micro_sequences=4",
                                fmt::format("train.batch_tokens={}", v)};
           }},
          {"vocabulary", 2048, 131072,
           [](int64_t v) { return Assignments{fmt::format("model.vocab_size={}", v)}; }}};
}

// "experts (4 to 256), batch (2048 to 65536)"
std::string ranges_text(const std::vector<Sweep>& sweeps) {
  std::string text;
  for (const Sweep& s : sweeps)
    text += fmt::format("{}{} ({} to {})", text.empty() ? "" : ", ", s.name, s.first, s.last);
  return text;
}

// Those with a value between `least` and `most`: of all, or all that are asked for by name.
std::vector<Sweep> wanted_sweeps(const BenchGrowthOptions& o) {
  std::vector<Sweep> sweeps = all_sweeps();
  for (const std::string& name : o.what) {
    const bool known =
        std::any_of(sweeps.begin(), sweeps.end(), [&](const Sweep& s) { return s.name == name; });
    if (!known)
      throw_error(Code::kInvalidArgument, "--of {}: wanted sequence, experts, batch or vocabulary",
                  name);
  }
  std::erase_if(sweeps, [&](const Sweep& s) {
    return !o.what.empty() && std::find(o.what.begin(), o.what.end(), s.name) == o.what.end();
  });
  for (Sweep& s : sweeps) {
    for (int64_t value = s.first; value <= s.last; value *= 2)
      if (value >= o.least && value <= o.most) s.values.push_back(value);
  }
  const auto without = [](const Sweep& s) { return s.values.empty(); };
  std::vector<Sweep> missed;
  std::copy_if(sweeps.begin(), sweeps.end(), std::back_inserter(missed), without);
  if (missed.size() == sweeps.size() || (!o.what.empty() && !missed.empty()))
    throw_error(Code::kInvalidArgument,
                "--least {} --most {}: there lies no value of {}; each is twice the one before",
                o.least, o.most, ranges_text(missed));
  std::erase_if(sweeps, without);
  return sweeps;
}

// What a token costs.
struct Point {
  int64_t value = 0;
  double step_seconds = 0;
  double seconds = 0, floor = 0, flops = 0;  // a token
  double slope = 0, floor_slope = 0;         // from the point before; NaN: the first
};

RunConfig config_of(const BenchTrainOptions& options, const Sweep& sweep, int64_t value) {
  BenchTrainOptions o = options;
  for (const std::string& assignment : sweep.set(value)) o.assignments.push_back(assignment);
  return read_bench_config(o);
}

RankLimits measure_limits(const RunConfig& config, int64_t threads) {
  Pool pool(static_cast<int>(threads));
  return rank_limits(measure_machine_quick(pool), pool.threads(),
                     compute_dtype(config) == DType::kBF16);
}

Point point_of(int64_t value, const TimedSteps& steps, const RankLimits& limits) {
  Point p{.value = value,
          .step_seconds = steps.seconds,
          .seconds = steps.seconds / static_cast<double>(steps.tokens)};
  const double tokens = static_cast<double>(steps.tokens * steps.count);
  for (const Profile::Row& row : steps.rows) {
    p.floor += floor_of(row, limits).seconds / tokens;
    p.flops += row.flops / tokens;
  }
  return p;
}

void set_slopes(Point& p, const Point* before) {
  const auto slope = [&](double Point::*cost) {
    if (before == nullptr) return std::nan("");
    return std::log(p.*cost / before->*cost) /
           std::log(static_cast<double>(p.value) / static_cast<double>(before->value));
  };
  p.slope = slope(&Point::seconds);
  p.floor_slope = slope(&Point::floor);
}

std::string slope_text(double slope) {
  return std::isnan(slope) ? "" : fmt::format("{:.2f}", slope);
}

void print(const Sweep& sweep, const Point& p, bool json) {
  if (json) {
    put_now(json_text({{"bench", "growth"},
                       {"what", sweep.name},
                       {"value", p.value},
                       {"step_ms", 1e3 * p.step_seconds},
                       {"token_us", 1e6 * p.seconds},
                       {"token_us_floor", 1e6 * p.floor},
                       {"token_flops", p.flops},
                       {"slope", p.slope},
                       {"slope_floor", p.floor_slope}}));
    return;
  }
  put_now(
      fmt::format("{:<12} {:>8} {:>9.1f}ms {:>11.2f}us {:>7} {:>11.2f}us {:>7} {:>9.1f} {:>8.1f}",
                  sweep.name, p.value, 1e3 * p.step_seconds, 1e6 * p.seconds, slope_text(p.slope),
                  1e6 * p.floor, slope_text(p.floor_slope), p.seconds / p.floor, 1e-6 * p.flops));
}

LineChart chart_of(const Sweep& sweep, const std::vector<Point>& points) {
  const auto series = [&](const char* name, int colour, double Point::*cost) {
    ChartSeries s{.name = name, .colour = colour, .dots = true};
    for (const Point& p : points) {
      s.x.push_back(static_cast<double>(p.value));
      s.y.push_back(1e6 * (p.*cost));
    }
    return s;
  };
  return {.title = "A token of training as " + sweep.name + " grows",
          .unit = "us",
          .series = {series("measured", 1, &Point::seconds),
                     series("at the machine's limits", 2, &Point::floor)},
          .log_x = true,
          .from_zero = true};
}

}  // namespace

void bench_growth(const BenchGrowthOptions& o) {
  const std::vector<Sweep> sweeps = wanted_sweeps(o);
  if (!o.chart.empty()) check_file_place(posix_file_system(), "bench growth --chart", o.chart);
  for (const Sweep& sweep : sweeps)  // a value that the config can not have is found now
    for (const int64_t value : sweep.values) config_of(o.train, sweep, value);
  const int64_t threads = o.train.threads > 0 ? o.train.threads : usable_cores();
  if (!o.train.json)
    fmt::print("{:<12} {:>8} {:>11} {:>13} {:>7} {:>13} {:>7} {:>9} {:>8}\n", "growth", "value",
               "step", "token", "slope", "floor", "slope", "x floor", "MFLOP");
  int64_t done = 0, total = 0;
  for (const Sweep& sweep : sweeps) total += static_cast<int64_t>(sweep.values.size());
  std::vector<LineChart> charts;
  for (const Sweep& sweep : sweeps) {
    std::vector<Point> points;
    // One measurement for all points: slopes of floors are of the work alone.
    std::optional<RankLimits> limits;
    for (const int64_t value : sweep.values) {
      RunConfig config = config_of(o.train, sweep, value);
      measure_dtype(config);
      if (!limits) limits = measure_limits(config, threads);
      Point p = point_of(value, time_steps(config, o.train.steps, threads), *limits);
      set_slopes(p, points.empty() ? nullptr : &points.back());
      print(sweep, p, o.train.json);
      if (o.progress) o.progress(++done, total);
      points.push_back(p);
    }
    charts.push_back(chart_of(sweep, points));
  }
  if (o.chart.empty()) return;
  posix_file_system().write_atomic(
      o.chart,
      chart_page({.title = "Cost of a token",
                  .subtitle = o.train.config_path +
                              ", one step, forward to update. Floor: each operation at the "
                              "measured peak or bandwidth, whichever binds.",
                  .body = chart_cards(charts)}));
}

}  // namespace moraine
