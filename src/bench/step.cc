// BenchStep: measures plans, fits operations, compares predicted with measured times.
#include "bench/step.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/pool.h"
#include "kernels/peak.h"  // spread_of
#include "plan/compare_times.h"
#include "plan/fit_operations.h"
#include "train/auto_dtype.h"
#include "train/mesh_plans.h"
#include "train/run_memory.h"
#include "train/run_mesh.h"
#include "train/step_layout.h"

namespace moraine {
namespace {

// A config with a plan's choices, and how it is run.
struct PlannedRun {
  RunConfig config;
  int ranks = 1, threads = 1;
};

StepPlan last_step(const RunConfig& c) {
  const Timeline timeline(c);
  return timeline.at(timeline.steps() - 1);
}

// Those that `bench step` fits to.
std::vector<PlannedRun> fitted_runs(const RunConfig& config, int cores) {
  RunConfig c = config;
  c.parallel.expert = c.parallel.context = 1;
  c.train.recompute = Recompute::kNone;
  const int64_t ranks =
      std::max(1, most_ranks(c, static_cast<int>(std::min<int64_t>(cores, c.train.slots))));
  std::vector<PlannedRun> runs;
  for (int64_t micro = slot_sequences(c, last_step(c)); micro > 0; micro /= 2) {
    if (slot_sequences(c, last_step(config)) % micro != 0) break;
    c.train.micro_sequences = micro;
    for (const int64_t r : {int64_t{1}, ranks}) {
      const int threads = std::max(1, cores / static_cast<int>(r));
      const bool is_new = std::none_of(runs.begin(), runs.end(), [&](const PlannedRun& run) {
        return run.ranks == r && run.config.train.micro_sequences == micro;
      });
      if (is_new) runs.push_back({c, static_cast<int>(r), threads});
    }
  }
  return runs;
}

bool is_fitted(const RunConfig& config, int cores, const MeshPlan& plan) {
  if (plan.mesh.expert > 1 || plan.mesh.context > 1 || plan.recompute != Recompute::kNone)
    return false;
  const std::vector<PlannedRun> runs = fitted_runs(config, cores);
  return std::any_of(runs.begin(), runs.end(), [&](const PlannedRun& run) {
    return run.ranks == plan.mesh.ranks && run.config.train.micro_sequences == plan.micro_sequences;
  });
}

// What is written again when all is measured.
Machine read_machine(const BenchStepOptions& o, const char* what) {
  if (o.machine_file.empty())
    throw_error(Code::kInvalidArgument,
                "bench {}: --machine is missing: wanted the file that `moraine bench gemm "
                "--machine FILE` and `moraine bench comm --machine FILE` have written",
                what);
  check_machine_place(posix_file_system(), fmt::format("bench {} --machine", what), o.machine_file);
  return load_machine(posix_file_system(), o.machine_file);
}

// What a row of the profile is called in a fit; empty: it is not fitted.
std::string fitted_name(const Profile::Row& row) {
  if (row.span == Span::kOperation) return row.name;
  if (row.span == Span::kRanks) return "";
  return std::string(row.name) == "data" ? kLoading : kBetween;
}

// One sample for each operation of a run.
std::vector<OperationSample> samples_of(const PlannedRun& run, const RankSteps& steps,
                                        const Machine& machine) {
  const Timeline timeline(run.config);
  const bool bf16 = compute_dtype(run.config) == DType::kBF16;
  const Place place = place_on_machine(machine, run.ranks, run.threads);
  const double slow = machine.threads / place.share();
  const StepWork work =
      step_work(run.config, last_step(run.config), run_mesh(run.config, run.ranks, 0),
                trainer_options(run.config, timeline, machine));
  std::vector<OperationSample> samples;
  const auto sample = [&](const std::string& name) -> OperationSample& {
    const auto same = std::find_if(samples.begin(), samples.end(),
                                   [&](const OperationSample& s) { return s.name == name; });
    return same == samples.end() ? samples.emplace_back(OperationSample{.name = name}) : *same;
  };
  for (const StepOperation& o : timed_operations(work.rank)) {
    OperationSample& s = sample(o.name);
    s.calls += o.calls;
    s.least_factor = o.product.groups > 0 ? kLeastOfProducts : kLeastOfOthers;
    s.base_seconds += base_seconds(o, machine, bf16) * slow;
  }
  for (const Profile::Row& row : steps.rows) {
    const std::string name = fitted_name(row);
    if (!name.empty()) sample(name).seconds += row.seconds;
  }
  std::erase_if(samples, [](const OperationSample& s) { return s.calls == 0; });
  return samples;
}

void print_fit(const OperationFit& fit, bool json) {
  if (json) {
    fmt::print("{}\n", json_text(Json{{"bench", "step"},
                                      {"name", fit.name},
                                      {"threads", fit.threads},
                                      {"call_us", fit.call_us},
                                      {"factor", fit.factor}}));
    return;
  }
  fmt::print("{:<34}{:>8}{:>10.2f}{:>10.3f}\n", fit.name, fit.threads, fit.call_us, fit.factor);
}

// Fits of the same type and threads go, others stay.
void replace_fits(Machine& machine, const std::vector<OperationFit>& fits) {
  std::erase_if(machine.operations, [&](const OperationFit& old) {
    return std::any_of(fits.begin(), fits.end(), [&](const OperationFit& fit) {
      return fit.bf16 == old.bf16 && fit.threads == old.threads && fit.name == old.name;
    });
  });
  machine.operations.insert(machine.operations.end(), fits.begin(), fits.end());
}

struct MeasuredOperation {
  MeshPlan plan;
  bool fitted = false;
  std::vector<double> ratios = {};  // to the reference
  double cpu_seconds = 0;           // least, over all cores
};

void print_measured(const MeasuredOperation& m, double seconds, bool json) {
  const MeshPlan& p = m.plan;
  if (json) {
    fmt::print("{}\n", json_text(Json{{"bench", "plan"},
                                      {"ranks", p.mesh.ranks},
                                      {"data", p.mesh.data()},
                                      {"context", p.mesh.context},
                                      {"expert", p.mesh.expert},
                                      {"recompute", p.recompute == Recompute::kLayer},
                                      {"micro_sequences", p.micro_sequences},
                                      {"fitted", m.fitted},
                                      {"bytes", p.bytes},
                                      {"predicted_ms", 1e3 * p.time.seconds},
                                      {"measured_ms", 1e3 * seconds},
                                      {"cpu_ms", 1e3 * m.cpu_seconds}}));
    return;
  }
  fmt::print("{:>5}{:>6}{:>9}{:>8}{:>11}{:>7}{:>8}{:>12.1f}{:>12.1f}{:>8.1f} %{:>10.1f}\n",
             p.mesh.ranks, p.mesh.data(), p.mesh.context, p.mesh.expert,
             p.recompute == Recompute::kLayer ? "layer" : "none", p.micro_sequences,
             m.fitted ? "yes" : "no", 1e3 * p.time.seconds, 1e3 * seconds,
             100 * (p.time.seconds / seconds - 1), 1e3 * m.cpu_seconds);
}

void print_comparison(const char* what, const std::vector<PredictedTime>& times, bool json) {
  const TimeComparison c = compare_times(times);
  if (json) {
    fmt::print("{}\n", json_text(Json{{"bench", "plan.summary"},
                                      {"plans", what},
                                      {"count", times.size()},
                                      {"rank_correlation", c.rank_correlation},
                                      {"error_median", c.error_median},
                                      {"error_largest", c.error_largest},
                                      {"bias", c.bias}}));
    return;
  }
  fmt::print(
      "{:<10} {:>4} plans: rank correlation {:.3f}; error median {:.1f} %, largest {:.1f} %; bias "
      "{:+.1f} %\n",
      what, times.size(), c.rank_correlation, 100 * c.error_median, 100 * c.error_largest,
      100 * c.bias);
}

std::vector<MeasuredOperation> plans_to_measure(const RunConfig& config, const BenchStepOptions& o,
                                                const Machine& machine) {
  std::vector<MeasuredOperation> all;
  const std::vector<int64_t> counts = o.ranks.empty() ? std::vector<int64_t>{1, 2, 4, 8} : o.ranks;
  for (const int64_t ranks : counts) {
    const Place place = place_on_machine(machine, ranks);
    for (const MeshPlan& plan :
         plan_meshes(config, place, machine, static_cast<int>(ranks), {.micro_sequences = true}))
      all.push_back({plan, is_fitted(config, machine.threads, plan)});
  }
  return all;
}

// The comparison of the plans that were held out.
TimeComparison report(const std::vector<MeasuredOperation>& all, double reference, bool json) {
  std::vector<PredictedTime> every, fitted, held_out, cpu;
  if (!json)
    fmt::print("{:>5}{:>6}{:>9}{:>8}{:>11}{:>7}{:>8}{:>12}{:>12}{:>10}{:>10}\n", "ranks", "data",
               "context", "expert", "recompute", "micro", "fitted", "predicted", "measured",
               "error", "cpu ms");
  for (const MeasuredOperation& m : all) {
    const double seconds = spread_of(m.ratios).median * reference;
    print_measured(m, seconds, json);
    every.push_back({m.plan.time.seconds, seconds});
    (m.fitted ? fitted : held_out).push_back(every.back());
    if (!m.fitted) cpu.push_back({m.plan.time.seconds, m.cpu_seconds});
  }
  print_comparison("all", every, json);
  print_comparison("fitted", fitted, json);
  print_comparison("held out", held_out, json);
  print_comparison("held out, by processor time over cores", cpu, json);
  return compare_times(held_out);
}

}  // namespace

void bench_step(const BenchStepOptions& o) {
  Machine machine = read_machine(o, "step");
  RunConfig config = read_bench_config(o.train);
  measure_dtype(config);
  const bool bf16 = compute_dtype(config) == DType::kBF16;
  std::vector<int> threads;
  std::vector<std::vector<OperationSample>> samples;  // by number of threads
  for (const PlannedRun& run : fitted_runs(config, machine.threads)) {
    const RankSteps steps = time_rank_steps(
        run.config, {.ranks = run.ranks, .threads = run.threads, .steps = o.train.steps}, machine);
    const auto at = std::find(threads.begin(), threads.end(), run.threads);
    const size_t i = static_cast<size_t>(at - threads.begin());
    if (at == threads.end()) threads.push_back(run.threads), samples.emplace_back();
    const std::vector<OperationSample> more = samples_of(run, steps, machine);
    samples[i].insert(samples[i].end(), more.begin(), more.end());
  }
  if (!o.train.json)
    fmt::print("{:<34}{:>8}{:>10}{:>10}\n", "operation", "threads", "call us", "factor");
  for (size_t i = 0; i < threads.size(); ++i) {
    const std::vector<OperationFit> fits = fit_operations(samples[i], bf16, threads[i]);
    for (const OperationFit& fit : fits) print_fit(fit, o.train.json);
    replace_fits(machine, fits);
  }
  save_machine(posix_file_system(), o.machine_file, machine);
}

void bench_plan(const BenchStepOptions& o) {
  Machine machine = read_machine(o, "plan");
  RunConfig config = read_bench_config(o.train);
  measure_dtype(config);
  std::vector<MeasuredOperation> all = plans_to_measure(config, o, machine);
  const PlannedRun reference = fitted_runs(config, machine.threads).front();
  const auto time = [&](const RunConfig& c, int ranks, int threads) {
    return time_rank_steps(c, {.ranks = ranks, .threads = threads, .steps = o.train.steps},
                           machine);
  };
  const auto time_reference = [&] {
    return time(reference.config, 1, reference.threads).least_seconds;
  };
  std::vector<double> references = {time_reference()};
  for (int64_t round = 0; round < o.rounds; ++round) {
    for (MeasuredOperation& m : all) {
      const int ranks = m.plan.mesh.ranks, threads = std::max(1, machine.threads / ranks);
      const RankSteps steps = time(with_plan(config, m.plan), ranks, threads);
      references.push_back(time_reference());
      const double beside = (references.end()[-2] + references.end()[-1]) / 2;
      m.ratios.push_back(steps.least_seconds / beside);
      const double cpu = steps.least_cpu_seconds / std::min(machine.threads, ranks * threads);
      if (m.cpu_seconds == 0 || cpu < m.cpu_seconds) m.cpu_seconds = cpu;
    }
  }
  const TimeComparison held_out =
      report(all, *std::min_element(references.begin(), references.end()), o.train.json);
  machine.calibration = {.plans = 0,
                         .ranks_most = 1,
                         .rank_correlation = held_out.rank_correlation,
                         .error_median = held_out.error_median,
                         .error_largest = held_out.error_largest};
  for (const MeasuredOperation& m : all) {
    machine.calibration.plans += m.fitted ? 0 : 1;
    machine.calibration.ranks_most =
        std::max<int64_t>(machine.calibration.ranks_most, m.plan.mesh.ranks);
  }
  save_machine(posix_file_system(), o.machine_file, machine);
}

}  // namespace moraine
