// Rows are added up step by step; events stay while there is room for whole steps.
#include "train/step_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "train/console.h"
#include "train/step_layout.h"
#include "train/trace.h"
#include "train/what_binds.h"

namespace moraine {

StepWatch::StepWatch(int64_t steps) : steps_(steps) {
  if (steps_ > 0) events_.reserve(kTraceEventsMost);
}

void StepWatch::begin(Profile& profile) {
  recording_ = on() && seen_ > 0 && traced_ == watched();
  profile.record(recording_ ? &events_ : nullptr);
}

void StepWatch::end(Profile& profile, int64_t tokens) {
  profile.record(nullptr);
  if (!on()) return;
  const bool counts = seen_++ > 0 && tokens > 0;
  if (recording_) keep_events(counts);
  if (!counts) return;
  const std::vector<Profile::Row> rows = profile.rows();
  merge_rows(rows_, rows);
  double seconds = row_of(rows, "step").seconds_whole;
  for (const char* around : {"validation", "sample", "checkpoint", "storage"})
    seconds -= row_of(rows, around).seconds_whole;
  token_seconds_.push_back(seconds / static_cast<double>(tokens));
}

// A step that did not fit, or does not count, leaves nothing; but of the very first one its beginning
// is better than nothing.
void StepWatch::keep_events(bool whole) {
  const bool fits = events_.size() < events_.capacity();
  if (whole && fits) {
    ++traced_;
  } else if (!whole || events_kept_ > 0) {
    events_.resize(events_kept_);
  }
  events_kept_ = events_.size();
}

void StepWatch::stop() {
  steps_ = 0;
  events_ = {};
  events_kept_ = 0;
}

namespace {

int cores_of_a_rank(const Transport& transport) {
  int here = 0;
  for (int r = 0; r < transport.size(); ++r)
    here += transport.host_of(r) == transport.host_of(transport.rank());
  return std::max(1, usable_cores() / here);
}

BindingFacts binding_facts(const Run& run, const StepPlan& plan, const StepWatch& watch) {
  const RunConfig& c = run.config;
  const bool bf16 = compute_dtype(c) == DType::kBF16;
  return {.rows = watch.rows(),
          .limits = rank_limits(run.machine, run.pool.threads(), bf16),
          .token_seconds = watch.token_seconds(),
          .bf16 = bf16,
          .bf16_faster = bf16_is_faster(run.machine),
          .ranks = run.ranks.mesh.ranks,
          .cores = cores_of_a_rank(run.ranks.world.transport()),
          .threads = run.pool.threads(),
          .slots = c.train.slots / run.ranks.mesh.data(),
          .slot_sequences = slot_sequences(c, plan),
          .micro_sequences = micro_sequences(c, plan)};
}

std::string trace_line(const Run& run, const StepWatch& watch) {
  const std::string path = join_path(run.options.out, "trace.json");
  try {
    run.fs.write_atomic(path, trace_text(watch.events(), run.ranks.mesh.rank));
  } catch (const Error& e) {
    log_event(Level::kWarning, "trace.failed",
              "code={} reason=\"{}\" remedy=\"training goes on without it\"", code_name(e.code()),
              e.what());
    return "";
  }
  const std::string steps = watch.traced() > 0 ? fmt::format("{} of these steps", watch.traced())
                                               : "the beginning of one";
  return fmt::format("{}: {}, {} spans of rank {}, for chrome://tracing or Perfetto\n", path, steps,
                     watch.events().size(), run.ranks.mesh.rank);
}

}  // namespace

void report_watched(const Run& run, const StepPlan& plan, StepWatch& watch) {
  if (!watch.on()) return;
  if (watch.watched() == 0) {
    print_profile("profile: no step behind the first one of this process, nothing was measured\n");
    watch.stop();
    return;
  }
  const BindingFacts facts = binding_facts(run, plan, watch);
  const double ms = 1e3 * split_time(facts.rows, facts.limits).seconds;
  print_profile(fmt::format(
      "\nprofile of rank {} of {}: {} steps, {:.1f} ms each, checkpoints and validation included\n"
      "{}{}{}\n\n",
      run.ranks.mesh.rank, run.ranks.mesh.ranks, watch.watched(),
      ms / static_cast<double>(watch.watched()), time_table(facts.rows, facts.limits),
      trace_line(run, watch), what_binds(facts)));
  watch.stop();
}

}  // namespace moraine
