// Times whole steps, then shows where the time of the median step's run went.
#include "cli/bench_train.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/json.h"
#include "base/random.h"
#include "base/resident.h"
#include "plan/machine.h"
#include "train/metrics.h"
#include "train/trainer.h"

namespace moraine {
namespace {

void read_random(const StepPlan& plan, int64_t vocab, int64_t first, int64_t count,
                 SequenceBatch* out) {
  const int64_t rows = count * plan.sequence;
  out->tokens.resize(static_cast<size_t>(rows));
  out->targets.resize(static_cast<size_t>(rows));
  out->segment_begin.clear();
  out->num_targets = rows;
  for (int64_t i = 0; i < rows; ++i) {
    const uint64_t index = static_cast<uint64_t>((plan.first_sequence + first) * plan.sequence + i);
    out->tokens[static_cast<size_t>(i)] = static_cast<int32_t>(
        random_below(static_cast<uint64_t>(vocab), 1, Stream::kTest, 0, index));
    out->targets[static_cast<size_t>(i)] = static_cast<int32_t>(
        random_below(static_cast<uint64_t>(vocab), 2, Stream::kTest, 0, index));
  }
  for (int64_t i = 0; i < count; ++i) out->segment_begin.push_back(i * plan.sequence);
}

struct Result {
  double seconds_median = 0, tokens_per_s = 0, gflops = 0, peak_gflops = 0;
  std::vector<Profile::Row> rows;
  double seconds_all = 0;
};

void print_result(const Result& r, const Arena& arena, int64_t resident) {
  fmt::print(
      "step {:.1f} ms  {} tok/s  {:.1f} GFLOP/s  {:.1f}% of the measured peak {:.1f} GFLOP/s\n",
      r.seconds_median * 1e3, format_count(r.tokens_per_s), r.gflops,
      100 * r.gflops / r.peak_gflops, r.peak_gflops);
  fmt::print("memory: plan {:.1f} MiB, peak resident {:.1f} MiB\n\n",
             static_cast<double>(arena.bytes()) / (1 << 20),
             static_cast<double>(resident) / (1 << 20));
  fmt::print("{:<34} {:>8} {:>9} {:>7} {:>9} {:>7}\n", "operation", "calls", "ms", "time%",
             "GFLOP/s", "GB/s");
  double seconds = 0;
  for (const Profile::Row& row : r.rows) {
    seconds += row.seconds;
    fmt::print("{:<34} {:>8} {:>9.2f} {:>6.1f}% {:>9.1f} {:>7.1f}\n", row.name, row.calls,
               row.seconds * 1e3, 100 * row.seconds / r.seconds_all, row.flops / row.seconds / 1e9,
               row.bytes / row.seconds / 1e9);
  }
  fmt::print("{:<34} {:>8} {:>9.2f} {:>6.1f}%\n", "(between operations)", "",
             (r.seconds_all - seconds) * 1e3, 100 * (r.seconds_all - seconds) / r.seconds_all);
}

}  // namespace

void bench_train(const BenchTrainOptions& options) {
  FileSystem& fs = posix_file_system();
  SettingsTable settings = SettingsTable::parse(fs.read(options.config_path), options.config_path);
  for (const std::string& assignment : options.assignments) settings.set(assignment);
  RunConfig config = read_run_config(settings);
  if (config.model.vocab_size == 0) config.model.vocab_size = 4096;
  const int threads = options.threads > 0 ? static_cast<int>(options.threads) : usable_cores();
  const Timeline timeline(config);
  Pool pool(threads);
  Result r;
  const bool bf16 = config.train.dtype == "bf16";
  const double peak_before = matmul_gflops(measure_machine_quick(pool), bf16);
  Arena arena(Arena::Mode::kReal);
  PlannedRanks alone;
  Trainer trainer(arena, pool, config, timeline, alone.ranks());
  arena.seal();
  trainer.initialize(1);
  trainer.refresh();
  Profile profile;
  std::vector<double> seconds;
  double flops = 0;
  const StepPlan plan = timeline.at(timeline.steps() - 1);
  for (int64_t step = -1; step < options.steps; ++step) {  // one to warm up
    if (step == 0) trainer.ctx().profile = &profile;
    const double begin = now_seconds();
    const StepResult result =
        trainer.compute_gradients(plan, [&](int64_t first, int64_t count, SequenceBatch* out) {
          read_random(plan, config.model.vocab_size, first, count, out);
        });
    if (result.finite) trainer.apply(plan, result, 1e-3);
    if (step >= 0) seconds.push_back(now_seconds() - begin);
  }
  const int64_t resident =
      peak_resident_bytes();  // before the second measurement takes memory of its own
  for (const double s : seconds) r.seconds_all += s;
  std::sort(seconds.begin(), seconds.end());
  flops = profile.flops() / static_cast<double>(options.steps);
  r.seconds_median = seconds[seconds.size() / 2];
  r.tokens_per_s = static_cast<double>(plan.batch_tokens) / r.seconds_median;
  r.gflops = flops / r.seconds_median / 1e9;
  r.peak_gflops = (peak_before + matmul_gflops(measure_machine_quick(pool), bf16)) / 2;
  r.rows = profile.rows();
  if (!options.json) {
    print_result(r, arena, resident);
    return;
  }
  fmt::print("{}\n", Json{{"bench", "train"},
                          {"threads", threads},
                          {"step_ms_median", r.seconds_median * 1e3},
                          {"tokens_per_s", r.tokens_per_s},
                          {"gflop_per_s", r.gflops},
                          {"peak_gflop_per_s", r.peak_gflops},
                          {"percent_of_peak", 100 * r.gflops / r.peak_gflops}}
                         .dump());
  for (const Profile::Row& row : r.rows) {
    fmt::print("{}\n", Json{{"bench", "train.operation"},
                            {"name", row.name},
                            {"calls", row.calls},
                            {"seconds", row.seconds},
                            {"flops", row.flops},
                            {"bytes", row.bytes}}
                           .dump());
  }
}

}  // namespace moraine
