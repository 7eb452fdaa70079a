// Rows are added up step by step; events stay while there is room for whole steps.
#include "train/step_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/collectives.h"
#include "train/console.h"
#include "train/rank_profiles.h"
#include "train/step_layout.h"
#include "train/what_binds.h"

namespace moraine {

StepWatch::StepWatch(int64_t steps, int64_t events) : steps_(steps), start_(now_seconds()) {
  if (steps_ > 0) events_.reserve(static_cast<size_t>(events));
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

// "rank 0", "ranks 0 to 3"
std::string ranks_text(size_t ranks) {
  return ranks == 1 ? "rank 0" : fmt::format("ranks 0 to {}", ranks - 1);
}

std::string trace_line(const Run& run, std::span<const RankProfile> ranks) {
  const std::string path = join_path(run.options.out, "trace.json");
  std::vector<RankTrace> traces;
  int64_t whole = INT64_MAX, spans = 0;
  for (size_t r = 0; r < ranks.size() && r < kTraceRanksMost; ++r) {
    traces.push_back({static_cast<int>(r), ranks[r].start, ranks[r].events});
    whole = std::min(whole, ranks[r].traced);
    spans += static_cast<int64_t>(ranks[r].events.size());
  }
  try {
    run.fs.write_atomic(path, trace_text(traces));
  } catch (const Error& e) {
    log_event(Level::kWarning, "trace.failed",
              "code={} reason=\"{}\" remedy=\"training goes on without it\"", code_name(e.code()),
              e.what());
    return "";
  }
  const std::string steps =
      whole > 0 ? fmt::format("{} of these steps", whole) : "the beginning of one";
  return fmt::format("{}: {}, {} spans of {}, for chrome://tracing or Perfetto\n", path, steps,
                     spans, ranks_text(traces.size()));
}

// Clocks of one host are one: those of its ranks begin together, when the first of them was let go.
void align_starts(std::span<RankProfile> ranks) {
  std::map<int64_t, double> starts;
  for (const RankProfile& r : ranks) {
    const auto at = starts.try_emplace(r.host, r.start).first;
    at->second = std::min(at->second, r.start);
  }
  for (RankProfile& r : ranks) r.start = starts.at(r.host);
}

void print_watched(const Run& run, const StepPlan& plan, const StepWatch& watch,
                   std::span<const RankProfile> ranks) {
  const BindingFacts facts = binding_facts(run, plan, watch);
  const double ms = 1e3 * split_time(facts.rows, facts.limits).seconds;
  print_profile(fmt::format(
      "\nprofile of rank {} of {}: {} steps, {:.1f} ms each, checkpoints and validation included\n"
      "{}{}{}{}\n\n",
      run.ranks.mesh.rank, run.ranks.mesh.ranks, watch.watched(),
      ms / static_cast<double>(watch.watched()), time_table(facts.rows, facts.limits),
      ranks.size() > 1 ? rank_table(ranks, watch.watched()) : "", trace_line(run, ranks),
      what_binds(facts)));
}

}  // namespace

StepWatch begin_watch(Run& run) {
  const int64_t steps = run.options.profile_steps;
  if (steps > 0) barrier(run.ranks.world);
  return StepWatch(steps, trace_events_of(run.ranks.mesh.rank, run.ranks.mesh.ranks));
}

void report_watched(Run& run, const StepPlan& plan, StepWatch& watch) {
  if (!watch.on()) return;
  if (watch.watched() > 0) {
    const Transport& transport = run.ranks.world.transport();
    std::vector<RankProfile> ranks = gather_profiles(
        run.ranks.world, {.host = transport.host_of(transport.rank()),
                          .start = watch.start(),
                          .traced = watch.traced(),
                          .rows = watch.rows(),
                          .events = {watch.events().begin(), watch.events().end()}});
    align_starts(ranks);
    if (run.first()) print_watched(run, plan, watch, ranks);
  } else if (run.first()) {
    print_profile("profile: no step behind the first one of this process, nothing was measured\n");
  }
  watch.stop();
}

}  // namespace moraine
