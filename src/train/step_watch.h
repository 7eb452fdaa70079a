// StepWatch: the profile of the first steps of a run on each rank: their rows, their events, the report on them.
//
// The first step of a process is left out (pages are touched, files are read for the first time),
// and so is a step that was rolled back.
#pragma once

#include <span>
#include <vector>

#include "train/run.h"
#include "train/trace.h"

namespace moraine {

class StepWatch {
 public:
  // 0 steps: watches nothing. events: spans that there is room for.
  explicit StepWatch(int64_t steps, int64_t events = kTraceEventsMost);

  // Around the span "step", which encloses all of a step; the profile was cleared before.
  void begin(Profile& profile);
  // tokens: of the step; 0 if it was rolled back.
  void end(Profile& profile, int64_t tokens);

  bool on() const { return steps_ > 0; }
  bool complete() const { return on() && watched() == steps_; }
  int64_t watched() const { return static_cast<int64_t>(token_seconds_.size()); }
  int64_t traced() const { return traced_; }  // of them, whole in events()
  const std::vector<Profile::Row>& rows() const { return rows_; }
  std::span<const Profile::Event> events() const { return {events_.data(), events_kept_}; }
  // Of each step, without validation, samples, checkpoints and the probe of the storage.
  const std::vector<double>& token_seconds() const { return token_seconds_; }
  // When it began, on every rank the same instant.
  double start() const { return start_; }
  void stop();  // watches no more

 private:
  void keep_events(bool whole);

  int64_t steps_;
  double start_;
  int64_t seen_ = 0, traced_ = 0;
  bool recording_ = false;
  size_t events_kept_ = 0;  // without those of the step that goes on
  std::vector<Profile::Row> rows_;
  std::vector<Profile::Event> events_;  // its capacity stays as it is
  std::vector<double> token_seconds_;
};

// A watch of this rank. Collective if there is something to watch, as the report is.
StepWatch begin_watch(Run& run);

// Rank 0 prints its table, what each operation takes over all ranks, and what binds, and writes trace.json into the
// run's directory; all stop watching. A trace that can not be written takes nothing from the run.
void report_watched(Run& run, const StepPlan& plan, StepWatch& watch);

}  // namespace moraine
