// The training run: open, then step by step to the end.
#include "train/loop.h"

#include <cmath>
#include <ctime>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/fault_point.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/resident.h"
#include "comm/end_by.h"
#include "comm/thread_ranks.h"
#include "train/console.h"
#include "train/dead_experts.h"
#include "train/diverged.h"
#include "train/learning_rate.h"
#include "train/move.h"
#include "train/observe.h"
#include "train/open_run.h"
#include "train/replan.h"
#include "train/report.h"
#include "train/roll_back.h"
#include "train/run_heartbeat.h"
#include "train/run_kept.h"
#include "train/save.h"
#include "train/step_watch.h"
#include "train/storage_report.h"
#include "train/stored.h"
#include "train/time_split.h"

namespace moraine {
namespace {

struct Pace;
void observe_step(Run& run, Observer& observer, Pace& pace, StepMetrics& m);
void write_report(Run& run, const std::string& sample);
RunResult finish(Run& run);

constexpr int64_t kStorageAfterSteps = 8;  // the step time is known by then

// What the loop measures about itself.
struct Pace {
  double started = 0;          // of this process
  double average_seconds = 0;  // per step, exponential average
  double tokens_per_s = 0;     // likewise
  double step_seconds = 0;     // the last one's
  int64_t steps = 0;           // of this process
  DeadExperts dead_experts;
  Profile profile{};   // of the step that goes on
  StepWatch watch{0};  // if it was asked for
};

// Before all ranks stop for the same reason: none leaves while another still waits for it.
void barrier_before_stop(Run& run) { barrier(run.ranks.world); }

// A signal on any rank, or the time limit on rank 0: all save, then stop with kInterrupted. Otherwise: whether a larger
// group could be met.
bool stop_if_asked(Run& run, Pace& pace) {
  fault_point("step.votes");
  const double limit = run.config.train.time_limit_seconds;
  const bool asked = run.options.stop_signal != nullptr && run.options.stop_signal->load() != 0;
  const bool late = run.first() && limit > 0 && now_seconds() - pace.started > limit;
  const bool grow = run.first() && run.options.has_newcomers && run.options.has_newcomers();
  int64_t votes[3] = {asked ? 1 : 0, late ? 1 : 0, grow ? 1 : 0};
  {
    const bool others = run.ranks.mesh.ranks > 1;
    const OpTimer timer(others ? &pace.profile : nullptr, Span::kRanks, "ranks: votes");
    all_reduce_sum(run.ranks.world, votes);
  }
  const bool signal = votes[0] > 0;
  if (!signal && votes[1] == 0) return votes[2] > 0;
  fault_point("stop.voted");
  const CheckpointWritten written = save_now(run);
  report_watched(run, run.timeline.at(run.state.step), pace.watch);
  fault_point("stop.saved");
  barrier_before_stop(run);
  fault_point("stop.agreed");
  throw_error(Code::kInterrupted,
              "{} after step {} of {}; saved {}; run the same command again{} to go on",
              signal ? "signal" : "time limit", run.state.step, run.timeline.steps(),
              written.directory, run.options.resume == "auto" ? "" : " with --resume auto");
}

// In which ranks check each other: also where a save or the end comes next.
bool must_verify(const Run& run) {
  const int64_t every = run.config.train.verify_every_steps, next = run.state.step + 1;
  return every > 0 && (next % every == 0 || next % run.config.checkpoint.every_steps == 0 ||
                       next == run.timeline.steps());
}

StepResult take_step(Run& run, const StepPlan& plan, double lr_scale) {
  if (run.state.step + 1 < run.timeline.steps())
    run.data->prefetch(run.timeline.at(run.state.step + 1));
  const auto read = [&](int64_t first, int64_t count, SequenceBatch* out) {
    run.data->read(plan, first, count, out);
  };
  return run.trainer->step(plan, lr_scale, read, run.state.spike, must_verify(run));
}

StepMetrics step_metrics(const Run& run, const StepPlan& plan, const StepResult& result, double lr,
                         double seconds, Pace& pace) {
  StepMetrics m;
  m.step = run.state.step;
  m.steps_total = run.timeline.steps();
  m.tokens_seen = plan.tokens_before + plan.batch_tokens;
  m.targets = result.targets;
  m.loss = result.loss;
  m.gradient_norm = result.gradient_norm;
  m.lr = lr;
  m.seconds = seconds;
  m.tokens_per_s = static_cast<double>(plan.batch_tokens) / seconds;
  pace.tokens_per_s =
      pace.tokens_per_s == 0 ? m.tokens_per_s : 0.8 * pace.tokens_per_s + 0.2 * m.tokens_per_s;
  const bool bf16 = compute_dtype(run.config) == DType::kBF16;
  const double peak = run.gpu != nullptr  // that is not measured
                          ? 0
                          : rank_limits(run.machine, run.pool.threads(), bf16).flops_s;
  if (peak > 0) m.percent_of_peak = 100 * pace.profile.flops() / seconds / peak;
  pace.step_seconds = seconds;
  pace.average_seconds =
      pace.average_seconds == 0 ? seconds : 0.95 * pace.average_seconds + 0.05 * seconds;
  m.seconds_left =
      pace.average_seconds * static_cast<double>(run.timeline.steps() - run.state.step);
  m.rank_load_over_mean = result.rank_load_over_mean;
  m.home_load_over_mean = result.home_load_over_mean;
  if (!run.trainer->load().empty())
    set_load(&m, run.trainer->load(), run.config.model.has_skip(), run.state.step % 16 == 0);
  return m;
}

// Each expert group has a placement of its own.
void tell_placement(const Run& run, const std::optional<PlacementChange>& placed) {
  if (!placed || run.ranks.experts.rank() != 0) return;
  log_event(Level::kInfo, "experts.placed",
            "step={} reason={} layers={} guests={} new_guests={} over_mean_before={:.3f} "
            "over_mean_after={:.3f} gain_ms={:.3f} bytes_per_step={}",
            run.state.step, placed->reason, placed->layers, placed->guests, placed->new_guests,
            placed->over_mean_before, placed->over_mean_after, placed->gain_seconds * 1e3,
            placed->bytes);
}

void tell_dead_experts(const Run& run, Pace& pace, const StepMetrics& m, int64_t tokens) {
  const ModelConfig& model = run.config.model;
  if (!pace.dead_experts.add(m.dead_experts, tokens) || !run.first()) return;
  log_event(Level::kWarning, "experts.dead",
            "step={} dead={} of={} reason=\"a quarter of them had no token for 100 steps\" "
            "remedy=\"they may come back; if not, begin anew with a larger model.init_std (small "
            "models 0.05), a lower optimizer.learning_rate, or a higher "
            "optimizer.balance_learning_rate\"",
            m.step, m.dead_experts, model.layers * model.experts);
}

bool probes_storage(const Run& run) {
  const bool again = run.options.kept != nullptr && run.options.kept->groups > 1;
  return run.first() && run.config.report.probe_storage && !again;
}

// Whether some rank's private copy is still in use. All ask at once: the answer is that of now, and one for all.
bool some_rank_saves(Run& run) {
  report_save(run, /*wait=*/false);
  int64_t votes[] = {saving(run) ? 1 : 0};
  all_reduce_sum(run.ranks.world, votes);
  return votes[0] > 0;
}

// To disk, or else into memory.
void save_if_due(Run& run) {
  const CheckpointConfig& c = run.config.checkpoint;
  if (run.state.step == run.timeline.steps()) return;  // finish() saves
  if (run.state.step % c.every_steps == 0) {
    save_in_background(run);
  } else if (c.memory_every_steps > 0 && run.saves.memory != nullptr &&
             run.state.step % c.memory_every_steps == 0 && !some_rank_saves(run)) {
    copy_to_memory(run);
  }
}

enum class Took : uint8_t { kStep, kRollback, kNothing };

// kNothing: the state is stored, and the ranks are to meet others.
Took go_on(Run& run, Observer& observer, Pace& pace) {
  const OpTimer whole(&pace.profile, Span::kPhase, "step");
  if (stop_if_asked(run, pace)) return Took::kNothing;
  set_activity(Activity::kComputing);
  const StepPlan plan = run.timeline.at(run.state.step);
  const double begin = now_seconds(),
               lr_scale = learning_rate_scale(run.config, run.timeline, plan);
  run.trainer->ctx().profile = &pace.profile;
  const StepResult result = take_step(run, plan, lr_scale);
  run.trainer->ctx().profile = nullptr;  // operations of validation and samples are not the step's
  if (!result.verdict.agreed()) leave_diverged(run, result.verdict);
  if (result.bad && must_roll_back(run, result)) {
    heartbeat().bad_steps.fetch_add(1);
    set_activity(Activity::kLoading);
    roll_back(run);
    return Took::kRollback;
  }
  if (result.bad) heartbeat().bad_steps.fetch_add(1);
  if (result.targets > 0) run.state.loss = result.loss;
  ++run.state.step;
  fault_point("step.counted");
  if (result.verified || run.config.train.verify_every_steps == 0)
    run.state.verified_step = run.state.step;
  tell_placement(run, result.placed);
  StepMetrics m = step_metrics(run, plan, result, lr_scale * run.config.optimizer.learning_rate,
                               now_seconds() - begin, pace);
  say_step(m, pace.profile);
  if (!run.trainer->load().empty()) tell_dead_experts(run, pace, m, plan.batch_tokens);
  if (run.options.kept != nullptr) ++run.options.kept->steps;
  set_activity(Activity::kObserving);
  observe_step(run, observer, pace, m);
  if (++pace.steps == kStorageAfterSteps && probes_storage(run)) {
    const OpTimer timer(&pace.profile, Span::kPhase, "storage");
    print_storage(run, plan, pace.average_seconds);
  }
  const OpTimer timer(&pace.profile, Span::kPhase, "checkpoint");
  set_activity(Activity::kStoring);
  save_if_due(run);
  report_save(run, /*wait=*/false);
  say_state(run);
  return Took::kStep;
}

// By a mark: gpu.wait() would take what it throws from whoever waits next, for the profile drops it.
void settle_if_watched(const Run& run, Pace& pace) {
  if (run.gpu && pace.watch.on()) {
    pace.profile.settle([&gpu = *run.gpu] { gpu.wait_for(gpu.mark()); });
  } else {
    pace.profile.settle(nullptr);
  }
}

// To the end of the run, until others could be met, or until the steps have another layout.
Stopped take_steps(Run& run, Observer& observer) {
  const ModelConfig& model = run.config.model;
  Pace pace{.dead_experts = DeadExperts(model.layers, model.experts)};
  Replan replan;
  pace.started = run.options.kept != nullptr ? run.options.kept->started : now_seconds();
  pace.watch = begin_watch(run);
  while (run.state.step < run.timeline.steps()) {
    const StepPlan plan = run.timeline.at(run.state.step);
    if (!has_layout_of(run, plan))
      return begin_move(run, fmt::format("phase {}", plan.phase + 1), pace.tokens_per_s);
    end_move(run);
    pace.profile.clear();
    settle_if_watched(run, pace);
    pace.watch.begin(pace.profile);
    const Took took = go_on(run, observer, pace);
    if (took == Took::kNothing) return Stopped::kToMeet;
    say_move(run, pace.tokens_per_s);
    pace.watch.end(pace.profile, took == Took::kStep ? plan.batch_tokens : 0);
    if (pace.watch.complete() || run.state.step == run.timeline.steps())
      report_watched(run, plan, pace.watch);
    if (took != Took::kStep) continue;
    const std::string reason = replan.ask(run, plan, pace.step_seconds);
    if (!reason.empty()) return begin_move(run, reason, pace.tokens_per_s);
  }
  if (pace.watch.on() && pace.watch.watched() == 0 && run.first()) print_no_profile();
  return Stopped::kAtTheEnd;
}

// Where the next group, or the next mesh, finds it.
RunResult store_for_others(Run& run, Stopped why) {
  set_activity(Activity::kStoring);
  fault_point("move.begun");
  if (run.saves.memory != nullptr) copy_to_memory(run);
  report_save(run, /*wait=*/true);
  if (run.saves.memory_step != run.state.step) save_now(run);
  fault_point("move.stored");
  barrier(run.ranks.world);
  RunResult stored;
  stored.is_done = false;
  stored.moves = why == Stopped::kToMove;
  return stored;
}

// Until it ends, or goes on in another group or another mesh.
RunResult train_in_layout(FileSystem& fs, const RunConfig& config, const RunOptions& options,
                          Transport& transport) {
  set_activity(Activity::kStarting);
  const bool again = options.kept != nullptr && options.kept->groups++ > 0;
  if (options.kept != nullptr && !again) options.kept->started = now_seconds();
  const std::unique_ptr<Run> run = open_run(fs, config, options, transport);
  Observer observer(*run);
  run->arena.seal();
  say_state(*run);
  if (run->first() && !again) print_start(*run);
  try {
    const Stopped why = take_steps(*run, observer);
    if (why != Stopped::kAtTheEnd) return store_for_others(*run, why);
    set_activity(Activity::kEnding);
    const RunResult done = finish(*run);
    const std::string sample = observer.can_sample() ? observer.sample() : "";
    if (run->first()) write_report(*run, sample);
    return done;
  } catch (const Error& e) {
    if (e.code() == Code::kRankDiverged) say_diverged(*run, e.what());
    note_distrusted(*run);
    // The others must hear of it before this rank waits for what it has in the background.
    end_by(transport, e);
    throw;
  }
}

}  // namespace

RunResult train(FileSystem& fs, const RunConfig& config, const RunOptions& given,
                Transport& transport) {
  set_log_rank(transport.rank());
  RunKept kept;
  RunOptions options = given;
  if (options.kept == nullptr && (moves(config) || replans(config))) options.kept = &kept;
  for (;;) {
    const RunResult result = train_in_layout(fs, config, options, transport);
    if (!result.moves) return result;
    options.resume = "auto";  // whatever it began with: from here on it goes on with its own
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

void observe_step(Run& run, Observer& observer, Pace& pace, StepMetrics& m) {
  const ReportConfig& r = run.config.report;
  const bool last = run.state.step == run.timeline.steps();
  const auto due = [&](int64_t every) {
    return every > 0 && (run.state.step % every == 0 || last);
  };
  if (observer.can_validate() && due(r.valid_every_steps)) {
    const OpTimer timer(&pace.profile, Span::kPhase, "validation");
    const Observer::Validation v = observer.validate();
    m.valid_loss = v.loss;
    m.bits_per_byte = v.bits_per_byte;
  }
  if (run.first()) {
    run.logs.metrics->write(m);
    run.logs.events->write(m, static_cast<double>(std::time(nullptr)));
    if (due(r.log_every_steps) || run.state.step == 1) print_step(m);
  }
  if (!observer.can_sample() || !due(r.sample_every_steps)) return;
  const OpTimer timer(&pace.profile, Span::kPhase, "sample");
  const std::string sample = observer.sample();
  if (run.first()) print_sample(run.state.step, sample);
}

// The run is done and saved: a page that can not be written takes nothing of that away.
void write_report(Run& run, const std::string& sample) {
  try {
    moraine::write_report(run.fs, join_path(run.options.out, "report.html"),
                          join_path(run.options.out, "metrics.jsonl"),
                          {.title = run.options.out,
                           .config = print_run_config(run.config),
                           .hardware = hardware_text(run),
                           .sample = sample});
  } catch (const Error& e) {
    log_event(
        Level::kWarning, "report.failed",
        "code={} reason=\"{}\" remedy=\"the run is complete; the same command writes the page "
        "again\"",
        code_name(e.code()), e.what());
  }
}

RunResult finish(Run& run) {
  fault_point("end.begun");
  const CheckpointWritten written = save_now(run);
  fault_point("end.saved");
  if (run.saves.memory != nullptr) report_refused(run, run.saves.memory->remove());
  fault_point("end.removed");
  if (run.first())
    log_event(Level::kInfo, "run.memory", "plan_mib={:.1f} peak_resident_mib={:.1f}",
              static_cast<double>(run.arena.bytes()) / (1 << 20),
              static_cast<double>(peak_resident_bytes()) / (1 << 20));
  return {.step = run.state.step,
          .tokens = run.timeline.tokens(),
          .loss = run.state.loss,
          .hash = hash_hex(written.hash),
          .checkpoint = written.directory};
}

}  // namespace
}  // namespace moraine
