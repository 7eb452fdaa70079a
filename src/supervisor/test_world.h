// TestWorld: a pretended run for tests of the supervisor: its processes, their steps and their faults, on a clock that
// is a number.
#pragma once

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "gtest/gtest.h"
#include "supervisor/supervisor.h"
#include "supervisor/test_effect_text.h"
#include "supervisor/test_process.h"

namespace moraine::testing {

class TestWorld {
 public:
  static constexpr double kTick = 0.1;
  using Process = TestProcess;

  TestWorld(const SuperviseOptions& options, uint64_t seed)
      : options_(options),
        seed_(seed),
        supervisor_(std::make_unique<Supervisor>(now, options)),
        twin_(std::make_unique<Supervisor>(now, options)),
        ranks(static_cast<size_t>(options.ranks)) {}

  void tell(const RunEvent& event) {
    const std::vector<RunEffect> effects = supervisor_->handle(now, event);
    const std::vector<RunEffect> same = twin_->handle(now, event);
    ASSERT_EQ(effects.size(), same.size()) << "at " << now;
    for (size_t i = 0; i < effects.size(); ++i)
      ASSERT_EQ(effect_text(effects[i]), effect_text(same[i])) << "at " << now;
    for (const RunEffect& effect : effects) take(effect);
  }

  // The supervisor dies and comes back from what it has saved; its twin lives on.
  void crash_supervisor() {
    const Json saved = parse_json(json_text(supervisor_->save(now)));
    supervisor_ = std::make_unique<Supervisor>(now, options_, saved);
  }

  void end(int r, int exit_code, int signal = 0) {
    at(r).alive = false;
    tell(RankEnded{.rank = r,
                   .exit_code = exit_code,
                   .signal = signal,
                   .last_lines = std::vector<std::string>(1, "last words")});
  }

  void pass() {
    now += kTick;
    start_wanted();
    move_processes();
    for (int r = 0; r < size(); ++r) {
      Process& p = at(r);
      if (!p.alive) continue;
      if (p.dies_at >= 0 && now >= p.dies_at) {
        end(r, 15);
        continue;
      }
      if (!p.unheard) tell(RankBeat{r, snapshot(r)});
    }
    tell(TimePassed{});
    if (step >= steps_total) {
      for (int r = 0; r < size(); ++r)
        if (at(r).alive && !at(r).hangs) end(r, 0);
    }
  }
  void pass_until_over(double limit) {
    while (!finished && now < limit && !::testing::Test::HasFatalFailure()) pass();
  }

  Process& at(int r) { return ranks[static_cast<size_t>(r)]; }
  const Process& at(int r) const { return ranks[static_cast<size_t>(r)]; }
  int size() const { return static_cast<int>(ranks.size()); }
  const Supervisor& supervisor() const { return *supervisor_; }
  uint64_t draw(uint64_t below) { return random_below(below, seed_, Stream::kTest, 0, drawn_++); }

 private:
  const SuperviseOptions options_;
  const uint64_t seed_;
  uint64_t drawn_ = 0;

 public:
  double now = 1000;
  int64_t step = 0, steps_total = 60;
  bool finished = false;
  int exit_code = -1;
  std::string reason;
  std::vector<LedgerEntry> ledger;
  std::vector<std::string> log;
  std::vector<int> starts;

 private:
  BeatSnapshot snapshot(int r) {
    Process& p = at(r);
    BeatSnapshot beat;
    const int hanging = who_hangs();
    beat.activity = p.activity;
    if (p.activity == Activity::kComputing && hanging >= 0 && hanging != r) {
      beat.activity = Activity::kWaiting;
      beat.waits_for = hanging;
    } else if (!p.hangs) {
      ++p.beats;
    }
    beat.beats = p.beats;
    beat.step = p.activity == Activity::kComputing ? step : 0;
    beat.steps_total = steps_total;
    beat.step_seconds = 5 * kTick;
    p.say_moments(now, &beat);
    return beat;
  }
  int who_hangs() const {
    for (int r = 0; r < size(); ++r)
      if (at(r).alive && at(r).hangs) return r;
    return -1;
  }
  bool is_absent(int r) const {
    return supervisor_->run().ranks[static_cast<size_t>(r)].phase == RankPhase::kAbsent;
  }

  void take(const RunEffect& effect) {
    if (const auto* start = std::get_if<StartRank>(&effect)) {
      ASSERT_FALSE(at(start->rank).alive) << "two processes of rank " << start->rank;
      wanted_.push_back(start->rank);
    } else if (const auto* signal = std::get_if<SignalRank>(&effect)) {
      ASSERT_EQ(signal->pid, at(signal->rank).pid);
      signals_.push_back(*signal);
    } else if (const auto* line = std::get_if<WriteLedger>(&effect)) {
      ledger.push_back(line->entry);
    } else if (const auto* event = std::get_if<WriteLog>(&effect)) {
      log.push_back(fmt::format("{} {}", event->name, event->fields));
    } else if (const auto* end = std::get_if<FinishRun>(&effect)) {
      finished = true, exit_code = end->exit_code, reason = end->reason;
    }
  }
  void start_wanted() {
    for (const int r : std::exchange(wanted_, {})) {
      starts.push_back(r);
      at(r) = {.alive = true, .pid = ++pids_, .until = now + 0.3};
      tell(RankStarted{r, pids_});
    }
  }

  void move_processes() {
    for (const SignalRank& s : std::exchange(signals_, {})) {
      const Process& p = at(s.rank);
      if (!p.alive || p.pid != s.pid) continue;
      if (s.signal == SIGKILL) end(s.rank, -1, SIGKILL);
      if (s.signal == SIGTERM && !p.hangs) end(s.rank, 18);
    }
    bool all = true, all_computing = true;
    for (int r = 0; r < size(); ++r) {
      const Process& p = at(r);
      all = all && (is_absent(r) || (p.alive && p.activity != Activity::kStarting));
      all_computing = all_computing &&
                      (is_absent(r) || (p.alive && !p.hangs && p.activity == Activity::kComputing));
    }
    for (Process& p : ranks) {
      move(p, all);
      p.mark(now);
    }
    const bool steps = all_computing && now >= step_due_;
    if (steps) ++step;
    if (steps || !all_computing) step_due_ = now + 5 * kTick;
  }
  void move(Process& p, bool all) {
    if (!p.alive || p.hangs) return;
    if (p.activity == Activity::kStarting && now >= p.until) p.activity = Activity::kMeeting;
    if (p.activity == Activity::kMeeting && all) {
      p.activity = Activity::kLoading;
      p.until = now + 0.2;
    } else if (p.activity == Activity::kLoading && now >= p.until) {
      p.activity = Activity::kComputing;
    } else if (p.activity == Activity::kComputing && !all && who_hangs() < 0) {
      if (options_.can_replace) p.activity = Activity::kMeeting;
      if (!options_.can_replace && p.dies_at < 0)
        p.dies_at = now + 0.1 * static_cast<double>(draw(20));
    }
  }

  std::unique_ptr<Supervisor> supervisor_, twin_;
  std::vector<int> wanted_;
  std::vector<SignalRank> signals_;
  int64_t pids_ = 100;
  double step_due_ = 0;

 public:
  std::vector<Process> ranks;
};

}  // namespace moraine::testing
