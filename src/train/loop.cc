// The training run: open, then step by step to the end.
#include "train/loop.h"

#include <cmath>
#include <ctime>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/resident.h"
#include "comm/thread_ranks.h"
#include "data/storage_model.h"
#include "data/storage_probe.h"
#include "train/learning_rate.h"
#include "train/observe.h"
#include "train/report.h"
#include "train/save.h"

namespace moraine {
namespace {

void print_start(const Run& run);
void roll_back(Run& run);
void observe_step(Run& run, Observer& observer, StepMetrics& m);
void print_storage(const Run& run, const StepPlan& plan, double step_seconds);
void write_report(Run& run, const std::string& sample);
RunResult finish(Run& run);

constexpr int64_t kStorageAfterSteps = 8;  // the step time is known by then

// What the loop measures about itself.
struct Pace {
  double started = now_seconds();
  double average_seconds = 0;  // per step, exponential average
  int64_t steps = 0;           // of this process
  Profile profile;
};

// Before all ranks stop for the same reason: none leaves while another still waits for it.
void barrier_before_stop(Run& run) { barrier(run.ranks.world); }
bool stops_all(Code code) { return code == Code::kInterrupted || code == Code::kDiverged; }

// What all ranks know at the start of a step.
struct Votes {
  bool saving = false;  // some rank's private copy is still in use
};

// A signal on any rank, or the time limit on rank 0: all save, then stop with kInterrupted.
Votes stop_if_asked(Run& run, const Pace& pace) {
  const double limit = run.config.train.time_limit_seconds;
  const bool asked = run.options.stop_signal != nullptr && run.options.stop_signal->load() != 0;
  const bool late = run.first() && limit > 0 && now_seconds() - pace.started > limit;
  int64_t votes[3] = {asked ? 1 : 0, late ? 1 : 0, saving(run) ? 1 : 0};
  all_reduce_sum(run.ranks.world, votes);
  const bool signal = votes[0] > 0;
  if (!signal && votes[1] == 0) return {.saving = votes[2] > 0};
  const CheckpointWritten written = save_now(run);
  barrier_before_stop(run);
  throw_error(Code::kInterrupted,
              "{} after step {} of {}; saved {}; run the same command again to go on",
              signal ? "signal" : "time limit", run.step, run.timeline.steps(), written.directory);
}

StepResult take_step(Run& run, const StepPlan& plan, double lr_scale) {
  if (run.step + 1 < run.timeline.steps()) {
    const StepPlan next = run.timeline.at(run.step + 1);
    run.data->prefetch(next, run.skip(next));
  }
  const auto read = [&](int64_t first, int64_t count, SequenceBatch* out) {
    run.data->read(plan, run.skip(plan), first, count, out);
  };
  return run.trainer->step(plan, lr_scale, read, run.spike);
}

// Logs a bad step. True: back to the last good checkpoint; false: the step is skipped.
bool must_roll_back(Run& run, const StepResult& result) {
  const SpikeConfig& c = run.config.spike;
  if (run.first())
    log_event(Level::kWarning, "step.bad", "step={} loss={} norm={} z={:.1f} in_a_row={} policy={}",
              run.step + 1, result.loss, result.gradient_norm, run.spike.z_score(),
              run.spike.bad_in_a_row(), c.policy);
  if (c.policy == "stop") {
    barrier_before_stop(run);
    throw_error(Code::kDiverged,
                "step {}: loss {}, gradient norm {}; spike.policy is stop; the last good "
                "checkpoint is in {}",
                run.step + 1, result.loss, result.gradient_norm, run.options.out);
  }
  return c.policy == "rollback" || run.spike.bad_in_a_row() >= c.patience;
}

StepMetrics step_metrics(const Run& run, const StepPlan& plan, const StepResult& result, double lr,
                         double seconds, Pace& pace) {
  StepMetrics m;
  m.step = run.step;
  m.steps_total = run.timeline.steps();
  m.tokens_seen = plan.tokens_before + plan.batch_tokens;
  m.loss = result.loss;
  m.gradient_norm = result.gradient_norm;
  m.lr = lr;
  m.seconds = seconds;
  m.tokens_per_s = static_cast<double>(plan.batch_tokens) / seconds;
  const double peak = matmul_gflops(run.machine, run.config.train.dtype == "bf16");
  if (peak > 0) m.percent_of_peak = 100 * pace.profile.flops() / seconds / (peak * 1e9);
  pace.average_seconds =
      pace.average_seconds == 0 ? seconds : 0.95 * pace.average_seconds + 0.05 * seconds;
  m.seconds_left = pace.average_seconds * static_cast<double>(run.timeline.steps() - run.step);
  if (!run.trainer->load().empty())
    set_load(&m, run.trainer->load(), run.config.model.has_skip(), run.step % 16 == 0);
  return m;
}

// To disk, or else into memory.
void save_if_due(Run& run, const Votes& votes) {
  const CheckpointConfig& c = run.config.checkpoint;
  if (run.step == run.timeline.steps()) return;  // finish() saves
  if (run.step % c.every_steps == 0) {
    save_in_background(run);
  } else if (run.memory != nullptr && run.step % c.memory_every_steps == 0 && !votes.saving) {
    copy_to_memory(run);
  }
}

// To the end of the run.
void take_steps(Run& run, Observer& observer) {
  Pace pace;
  run.trainer->ctx().profile = &pace.profile;
  while (run.step < run.timeline.steps()) {
    const Votes votes = stop_if_asked(run, pace);
    const StepPlan plan = run.timeline.at(run.step);
    const double begin = now_seconds(),
                 lr_scale = learning_rate_scale(run.config, run.timeline, plan);
    pace.profile.clear();
    const StepResult result = take_step(run, plan, lr_scale);
    if (result.bad && must_roll_back(run, result)) {
      roll_back(run);
      continue;
    }
    run.loss = result.loss;
    ++run.step;
    StepMetrics m = step_metrics(run, plan, result, lr_scale * run.config.optimizer.learning_rate,
                                 now_seconds() - begin, pace);
    observe_step(run, observer, m);
    if (++pace.steps == kStorageAfterSteps && run.first())
      print_storage(run, plan, pace.average_seconds);
    save_if_due(run, votes);
    report_save(run, /*wait=*/false);
  }
  run.trainer->ctx().profile = nullptr;
}

}  // namespace

RunResult train(FileSystem& fs, const RunConfig& config, const RunOptions& options,
                Transport& transport) {
  set_log_rank(transport.rank());
  const std::unique_ptr<Run> run = open_run(fs, config, options, transport);
  Observer observer(*run);
  run->arena.seal();
  if (run->first()) print_start(*run);
  try {
    take_steps(*run, observer);
    const RunResult done = finish(*run);
    const std::string sample = observer.can_sample() ? observer.sample() : "";
    if (run->first()) write_report(*run, sample);
    return done;
  } catch (const Error& e) {
    // The others must hear of it before this rank waits for what it has in the background.
    if (!stops_all(e.code())) transport.fail(e.what());
    throw;
  }
}

RunResult train(FileSystem& fs, const RunConfig& config, const RunOptions& options, int ranks) {
  RunResult result;
  run_thread_ranks(ranks, [&](Transport& transport) {
    const RunResult mine = train(fs, config, options, transport);
    if (transport.rank() == 0) result = mine;
  });
  return result;
}

namespace {

// What this run asks of its storage, against what the device under the data can do (docs/model.md,
// storage).
void print_storage(const Run& run, const StepPlan& plan, double step_seconds) {
  const Dataset& data = run.data->loader(plan.phase).dataset(0);
  const std::string shard = join_path(data.folder(), data.manifest().shards.front().file);
  constexpr double kProbeSeconds = 0.2;
  try {
    const StorageProbe probe = measure_storage_iops(
        run.fs, shard, {.threads = 8, .seconds = kProbeSeconds, .page_bytes = 4096, .seed = 1});
    const StorageLoad load{
        .sequences_per_step = static_cast<double>(plan.num_sequences),
        .tokens_per_sequence = static_cast<double>(plan.sequence),
        .bytes_per_token = static_cast<double>(data.manifest().meaning.token_bytes()),
        .page_bytes = 4096,
        .step_seconds = step_seconds,
        .extra_pages_per_sequence = 1,
        .iops_max = probe.iops};
    say("storage: {}\n{}\n", storage_probe_text(probe),
        storage_need_text(load, storage_need(load)));
  } catch (const Error& e) {
    log_event(Level::kWarning, "storage.not_measured", "reason=\"{}\"", e.what());
  }
}

std::string hardware_text(const Run& run) {
  return fmt::format("machine: {} threads, {}, measured peak {:.0f} GFLOP/s ({}), {:.0f} GB/s read",
                     run.machine.threads, run.machine.isa,
                     matmul_gflops(run.machine, run.config.train.dtype == "bf16"),
                     run.config.train.dtype, run.machine.read_gb_s);
}

void print_start(const Run& run) {
  const ParameterCount count = count_parameters(run.config.model);
  const RunConfig& c = run.config;
  say("{}\n", print_run_config(c));
  say("{}\n", hardware_text(run));
  const Mesh& mesh = run.ranks.mesh;
  say("ranks: {} ({}): {} data x {} context, experts over {}; this is rank 0's table\n", mesh.ranks,
      run.ranks.world.transport().name(), mesh.data(), mesh.context, mesh.expert);
  say("model: {} parameters, {} active per token, {} in the embedding\n",
      format_count(static_cast<double>(count.total)),
      format_count(static_cast<double>(count.active)),
      format_count(static_cast<double>(count.embedding)));
  say("\n{}\n",
      optimizer_table(optimizer_specs(c, run.trainer->model().table()), optimizer_options(c)));
  say("memory:\n{}\n", memory_table(run.arena));
  const auto plan = run.data->loader(0).plan(0, 0);
  say("data: {} tokens; packing fills {:.2f}% of {} sequences an epoch\n",
      format_count(static_cast<double>(run.data->loader(0).total_tokens())),
      100 * plan->efficiency(), plan->num_sequences());
  say("run: {} steps, {} tokens, from step {}\n\n", run.timeline.steps(),
      format_count(static_cast<double>(run.timeline.tokens())), run.step);
}

// As rank 0 reads it.
std::optional<int64_t> agreed_last_good(Run& run) {
  std::string text;
  if (run.first()) {
    const std::optional<int64_t> good = last_good(run.fs, run.options.out);
    if (good) text = std::to_string(*good);
  }
  text = from_first(run, text);
  if (text.empty()) return std::nullopt;
  return std::strtoll(text.c_str(), nullptr, 10);
}

// Gives up the steps since the last good checkpoint, and the data that they read.
void roll_back(Run& run) {
  report_save(run, /*wait=*/true);
  const std::optional<int64_t> good = agreed_last_good(run);
  if (!good || run.rollbacks >= run.config.spike.rollbacks_max) {
    barrier_before_stop(run);
    throw_error(Code::kDiverged,
                "step {}: {} bad steps in a row, {}; look at the learning rate and at the data "
                "near step {}",
                run.step + 1, run.spike.bad_in_a_row(),
                good ? fmt::format("{} rollbacks are used up", run.rollbacks)
                     : std::string("no checkpoint to go back to"),
                run.step + 1);
  }
  const StepPlan bad = run.timeline.at(run.step);
  const int64_t rollbacks = run.rollbacks + 1, bad_step = run.step, skip_before = run.skip(bad);
  const Checkpoint checkpoint = Checkpoint::open(
      run.fs, checkpoint_path(run.fs, run.options.out, *good), /*verify=*/run.first());
  run.trainer->restore(checkpoint);
  run.read_info(checkpoint.info());
  const StepPlan from = run.timeline.at(run.step);
  const int64_t passed =
      bad.first_sequence + bad.num_sequences - (from.phase == bad.phase ? from.first_sequence : 0);
  run.skip_sequences = skip_before + passed;
  run.skip_phase = bad.phase;
  run.rollbacks = rollbacks;
  run.spike.forget_bad();
  run.open_logs();
  if (run.first()) remove_checkpoints_after(run.fs, run.options.out, run.step);
  if (run.memory != nullptr) report_refused(run, run.memory->remove_after(run.step));
  // Saved at once, so that a crash from here on does not read the bad data again.
  write_live_state(run);
  if (run.first())
    log_event(Level::kWarning, "run.rolled_back",
              "from_step={} to_step={} skipped_sequences={} rollbacks={}", bad_step + 1, run.step,
              passed, run.rollbacks);
}

void observe_step(Run& run, Observer& observer, StepMetrics& m) {
  const ReportConfig& r = run.config.report;
  const bool last = run.step == run.timeline.steps();
  const auto due = [&](int64_t every) { return every > 0 && (run.step % every == 0 || last); };
  if (observer.can_validate() && due(r.valid_every_steps)) {
    const Observer::Validation v = observer.validate();
    m.valid_loss = v.loss;
    m.bits_per_byte = v.bits_per_byte;
  }
  if (run.first()) {
    run.metrics->write(m);
    run.events->write(m, static_cast<double>(std::time(nullptr)));
    if (due(r.log_every_steps) || run.step == 1) say("{}\n", human_line(m));
  }
  if (!observer.can_sample() || !due(r.sample_every_steps)) return;
  const std::string sample = observer.sample();
  if (run.first()) say("--- sample at step {}\n{}\n---\n", run.step, sample);
}

void write_report(Run& run, const std::string& sample) {
  moraine::write_report(run.fs, join_path(run.options.out, "report.html"),
                        join_path(run.options.out, "metrics.jsonl"),
                        {.title = run.options.out,
                         .config = print_run_config(run.config),
                         .hardware = hardware_text(run),
                         .sample = sample});
}

RunResult finish(Run& run) {
  const CheckpointWritten written = save_now(run);
  if (run.memory != nullptr) report_refused(run, run.memory->remove());
  if (run.first())
    log_event(Level::kInfo, "run.memory", "plan_mib={:.1f} peak_resident_mib={:.1f}",
              static_cast<double>(run.arena.bytes()) / (1 << 20),
              static_cast<double>(peak_resident_bytes()) / (1 << 20));
  return {.step = run.step,
          .tokens = run.timeline.tokens(),
          .loss = run.loss,
          .hash = hash_hex(written.hash),
          .checkpoint = written.directory};
}

}  // namespace
}  // namespace moraine
