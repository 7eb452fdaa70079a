// BenchTrain: times whole steps, then prints the share of each operation.
#include "bench/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/clock.h"
#include "base/json.h"
#include "base/named_file.h"
#include "base/resident.h"
#include "bench/free_transport.h"
#include "bench/random_batch.h"
#include "comm/mpi_transport.h"
#include "comm/thread_ranks.h"
#include "kernels/peak.h"  // spread_of
#include "machine/machine.h"
#include "parallel/rank_threads.h"
#include "train/auto_dtype.h"
#include "train/check_memory.h"
#include "train/metrics.h"
#include "train/run.h"
#include "train/run_memory.h"
#include "train/time_split.h"
#include "train/trainer.h"

namespace moraine {
namespace {

struct TrainResult {
  int ranks = 1, threads = 1;  // of a rank
  double seconds_median = 0, seconds_least = 0, tokens_per_s = 0, gflops = 0;
  double peak_gflops = 0, peak_share = 0;     // medians: of the peaks, and of steps' shares
  double free_seconds = 0;                    // median step with communication free; 0: one rank
  double alone_tokens_per_s = 0;              // one rank with all threads; 0: not measured
  double cpu_seconds_least = 0;               // of the whole process
  std::vector<Profile::Row> rows = {};        // of rank 0
  std::vector<Profile::Row> least_rows = {};  // of each operation the step where it took least
  int64_t plan_bytes = 0, resident_bytes = 0;
};

void print_ranks(const TrainResult& r) {
  const double exposed = r.seconds_median - r.free_seconds;
  fmt::print(
      "{} ranks x {} threads: step {:.1f} ms, {:.1f} ms with communication free; exposed {:.1f} "
      "ms, "
      "{:.1f}% of the step\n",
      r.ranks, r.threads, r.seconds_median * 1e3, r.free_seconds * 1e3, exposed * 1e3,
      100 * exposed / r.seconds_median);
  if (r.alone_tokens_per_s > 0) {
    fmt::print("1 rank x {} threads: {} tok/s; {} ranks give {:.2f} of it\n", r.ranks * r.threads,
               format_count(r.alone_tokens_per_s), r.ranks, r.tokens_per_s / r.alone_tokens_per_s);
  }
}

void print_result(const TrainResult& r, const RankLimits& limits) {
  fmt::print(
      "step {:.1f} ms  {} tok/s  {:.1f} GFLOP/s  {:.1f}% of the peak measured beside each step, "
      "{:.1f} GFLOP/s\n",
      r.seconds_median * 1e3, format_count(r.tokens_per_s), r.gflops, 100 * r.peak_share,
      r.peak_gflops);
  fmt::print("memory: plan {:.1f} MiB, peak resident {:.1f} MiB\n\n",
             static_cast<double>(r.plan_bytes) / (1 << 20),
             static_cast<double>(r.resident_bytes) / (1 << 20));
  if (r.ranks > 1) print_ranks(r);
  fmt::print("{}", time_table(r.rows, limits));
}

// Of all ranks of the job, which measure at the same time.
double sum_over(Transport& job, double value) {
  constexpr int kOwnChannel = kMaxChannels - 1;
  std::vector<int> all;
  for (int r = 0; r < job.size(); ++r) all.push_back(r);
  Communicator world(job, all, kOwnChannel, "measurement", 60);
  std::vector<double> values(all.size(), 0.0);
  values[static_cast<size_t>(job.rank())] = value;
  all_reduce_disjoint(world, values);
  double sum = 0;
  for (const double v : values) sum += v;
  return sum;
}

// Of each operation the least time of any step: neighbours only add.
void keep_least(std::vector<Profile::Row>& least, const std::vector<Profile::Row>& step) {
  for (const Profile::Row& row : step) {
    const auto same = std::find_if(least.begin(), least.end(), [&](const Profile::Row& r) {
      return std::strcmp(r.name, row.name) == 0;
    });
    if (same == least.end()) {
      least.push_back(row);
    } else if (row.seconds < same->seconds) {
      *same = row;
    }
  }
}

// What is measured, of how many steps.
struct Asked {
  int64_t steps = 0;
  int threads = 1;
  bool is_compared = true;  // every other step with communication free
  bool with_peaks = false;  // beside each step
  Machine machine = {};     // of the trainer's options
};

// Before it is taken. What a checkpoint is copied to stays untouched: nothing is saved.
void check_bench_memory(const RunConfig& config, const Asked& asked, Transport& transport,
                        Communicator& world) {
  Arena planned(Arena::Mode::kDry);
  plan_run_memory(planned, config, {.ranks = transport.size(), .rank = transport.rank()},
                  asked.machine);
  RankMemory mine{.host = transport.host_of(transport.rank()),
                  .host_free = available_memory_bytes()};
  for (const Arena::Entry& entry : planned.entries())
    if (!entry.name.starts_with("checkpoint.")) mine.host_bytes += entry.bytes;
  check_memory(mine, world);
}

// Steps beside what the ranks' processors reach together just before and after: neighbours take half of a machine in
// one second and leave it in the next, so a step is held against its own moment.
class PeaksBeside {
 public:
  PeaksBeside(Transport& job, Pool& pool, bool bf16) : job_(job), pool_(pool), bf16_(bf16) {}

  // All ranks at the same time.
  void measure() {
    peaks_.push_back(sum_over(job_, measure_matmul_gflops(pool_, bf16_, kSeconds)));
  }
  // Of the step between the last two.
  void add_step(double gflops) {
    shares_.push_back(gflops / (0.5 * (peaks_.end()[-2] + peaks_.back())));
  }
  double peak() const { return spread_of(peaks_).median; }
  double share() const { return spread_of(shares_).median; }

 private:
  static constexpr double kSeconds = 0.03;
  Transport& job_;
  Pool& pool_;
  const bool bf16_;
  std::vector<double> peaks_, shares_;
};

double flops_of(const std::vector<Profile::Row>& rows) {
  double flops = 0;
  for (const Profile::Row& row : rows) flops += row.flops;
  return flops;
}

// Steps of this rank; what rank 0 measured is the answer.
TrainResult run_steps(const RunConfig& config, const Asked& asked, Transport& transport) {
  const Timeline timeline(config);
  Arena arena(Arena::Mode::kReal);
  FreeTransport network(transport);
  Ranks ranks(network,
              make_mesh(transport.size(), transport.rank(), config.parallel.expert,
                        phase_context(config, 0), config.train.slots, config.model.experts),
              config.parallel.deadline_seconds);
  check_bench_memory(config, asked, transport, ranks.world);
  Pool pool(rank_threads(asked.threads, ranks.world));
  Trainer trainer(arena, pool, config, timeline, ranks,
                  trainer_options(config, timeline, asked.machine));
  arena.seal();
  trainer.initialize(1);
  trainer.refresh();
  Profile profile;
  SpikeDetector no_spikes(/*sigma=*/0);
  TrainResult r{.ranks = transport.size(), .threads = pool.threads()};
  std::vector<double> seconds, free_seconds, cpu_seconds;
  const StepPlan plan = timeline.at(timeline.steps() - 1);
  // With communication, and free.
  const int64_t kinds = transport.size() > 1 && asked.is_compared ? 2 : 1;
  PeaksBeside peaks(transport, pool, compute_dtype(config) == DType::kBF16);
  for (int64_t i = -kinds; i < asked.steps * kinds; ++i) {  // one of each to warm up
    const bool free = kinds == 2 && i % 2 != 0;
    network.set_free(free);
    trainer.ctx().profile = i >= 0 && !free ? &profile : nullptr;
    // Behind the first, the step before has measured it, unless a free one came between.
    if (asked.with_peaks && !free && (i == 0 || (i > 0 && kinds == 2))) peaks.measure();
    barrier(ranks.world);
    const double begin = now_seconds();
    const std::clock_t cpu_begin = std::clock();
    profile.clear();
    {
      const OpTimer whole(trainer.ctx().profile, Span::kPhase, "step");
      const auto read = [&](int64_t first, int64_t count, SequenceBatch* out) {
        read_random(plan, config.model.vocab_size, first, count, out);
      };
      trainer.step(plan, /*lr_scale=*/1e-3, read, no_spikes);
      {
        Profile* const waits = transport.size() > 1 ? trainer.ctx().profile : nullptr;
        const OpTimer timer(waits, Span::kRanks, "ranks: barrier");
        barrier(ranks.world);
      }
    }
    if (i >= 0) (free ? free_seconds : seconds).push_back(now_seconds() - begin);
    if (i < 0 || free) continue;
    cpu_seconds.push_back(static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC);
    if (asked.with_peaks) {
      peaks.measure();
      peaks.add_step(1e-9 * flops_of(profile.rows()) * transport.size() / seconds.back());
    }
    merge_rows(r.rows, profile.rows());
    keep_least(r.least_rows, profile.rows());
  }
  r.seconds_median = spread_of(seconds).median;
  r.seconds_least = *std::min_element(seconds.begin(), seconds.end());
  r.cpu_seconds_least = *std::min_element(cpu_seconds.begin(), cpu_seconds.end());
  if (kinds == 2) r.free_seconds = spread_of(free_seconds).median;
  r.tokens_per_s = static_cast<double>(plan.batch_tokens) / r.seconds_median;
  r.gflops = 1e-9 * flops_of(r.rows) * transport.size() / static_cast<double>(asked.steps) /
             r.seconds_median;
  if (asked.with_peaks) r.peak_gflops = peaks.peak(), r.peak_share = peaks.share();
  std::sort(r.rows.begin(), r.rows.end(),
            [](const Profile::Row& a, const Profile::Row& b) { return a.seconds > b.seconds; });
  r.plan_bytes = arena.bytes();
  // Before another measurement takes memory of its own.
  r.resident_bytes = peak_resident_bytes();
  return r;
}

TrainResult run_on_threads(const RunConfig& config, int ranks, const Asked& asked) {
  TrainResult result;
  run_thread_ranks(ranks, [&](Transport& transport) {
    const TrainResult mine = run_steps(config, asked, transport);
    if (transport.rank() == 0) result = mine;
  });
  return result;
}

// Ranks as threads, between two measurements of one rank with as many threads.
TrainResult run_with_baseline(const RunConfig& config, int64_t steps, int ranks, int threads) {
  RunConfig alone = config;
  alone.parallel = ParallelConfig();
  const auto baseline = [&] {
    return run_on_threads(alone, 1, {.steps = (steps + 1) / 2, .threads = ranks * threads})
        .tokens_per_s;
  };
  const double before = ranks > 1 ? baseline() : 0;
  TrainResult r =
      run_on_threads(config, ranks, {.steps = steps, .threads = threads, .with_peaks = true});
  if (ranks > 1) r.alone_tokens_per_s = (before + baseline()) / 2;
  return r;
}

void print_json(const TrainResult& r) {
  fmt::print("{}\n", json_text(Json{{"bench", "train"},
                                    {"ranks", r.ranks},
                                    {"threads", r.threads},
                                    {"step_ms_median", r.seconds_median * 1e3},
                                    {"step_ms_free", r.free_seconds * 1e3},
                                    {"alone_tokens_per_s", r.alone_tokens_per_s},
                                    {"tokens_per_s", r.tokens_per_s},
                                    {"gflop_per_s", r.gflops},
                                    {"peak_gflop_per_s", r.peak_gflops},
                                    {"percent_of_peak", 100 * r.peak_share}}));
  for (const Profile::Row& row : r.rows) {
    if (row.span == Span::kPhase) continue;
    fmt::print("{}\n", json_text(Json{{"bench", "train.operation"},
                                      {"name", row.name},
                                      {"calls", row.calls},
                                      {"seconds", row.seconds},
                                      {"flops", row.flops},
                                      {"bytes", row.bytes}}));
  }
}

}  // namespace

RunConfig read_bench_config(const BenchTrainOptions& options) {
  FileSystem& fs = posix_file_system();
  SettingsTable settings = SettingsTable::parse(
      read_named_file(fs, "bench --config", options.config_path), options.config_path);
  for (const std::string& assignment : options.assignments) settings.set(assignment);
  RunConfig config = read_run_config(settings);
  if (config.model.vocab_size == 0) config.model.vocab_size = 4096;
  return config;
}

TimedSteps time_steps(const RunConfig& config, int64_t steps, int64_t threads) {
  TrainResult r = run_on_threads(config, 1, {.steps = steps, .threads = static_cast<int>(threads)});
  const Timeline timeline(config);
  return {.count = steps,
          .seconds = r.seconds_median,
          .tokens = timeline.at(timeline.steps() - 1).batch_tokens,
          .rows = std::move(r.rows)};
}

RankSteps time_rank_steps(const RunConfig& config, const RanksAsked& asked,
                          const Machine& machine) {
  TrainResult r = run_on_threads(
      config, asked.ranks,
      {.steps = asked.steps, .threads = asked.threads, .is_compared = false, .machine = machine});
  return {.seconds = r.seconds_median,
          .least_seconds = r.seconds_least,
          .least_cpu_seconds = r.cpu_seconds_least,
          .rows = std::move(r.least_rows)};
}

void bench_train(const BenchTrainOptions& options) {
  RunConfig config = read_bench_config(options);
  // Steps with communication free would tell every rank something else of the others.
  config.parallel.placement = PlacementMode::kStatic;
  const std::unique_ptr<Transport> job = started_by_mpi() ? open_mpi_transport() : nullptr;
  const int ranks = job ? job->size() : static_cast<int>(options.ranks);
  const int threads =
      options.threads > 0 ? static_cast<int>(options.threads) : std::max(1, usable_cores() / ranks);
  const bool first = job == nullptr || job->rank() == 0;
  measure_dtype(config);
  const bool bf16 = compute_dtype(config) == DType::kBF16;
  // For the floors of operations; all processes measure at the same time.
  Machine machine;
  {
    Pool pool(job ? threads : std::min(usable_cores(), ranks * threads));
    machine = measure_machine_quick(pool);
  }
  const TrainResult r =
      job ? run_steps(config, {.steps = options.steps, .threads = threads, .with_peaks = true},
                      *job)
          : run_with_baseline(config, options.steps, ranks, threads);
  if (!first) return;
  if (!job)
    (bf16 && machine.bf16_gflops > 0 ? machine.bf16_gflops : machine.f32_gflops) = r.peak_gflops;
  options.json ? print_json(r) : print_result(r, rank_limits(machine, r.threads, bf16));
}

}  // namespace moraine
