// Events of a run, and what time brings.
#include "supervisor/supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <type_traits>

#include "base/check.h"
#include "base/printable.h"
#include "supervisor/state_json.h"

namespace moraine {
namespace {

constexpr int kExitInterrupted = 18, kExitPeerLost = 15;
constexpr double kMostBetweenEvents = 1;  // or the supervisor did not run
constexpr double kMostUnheard = 1;        // of another host, which says something twice a second

SupervisedRun initial_run(double now, const SuperviseOptions& o) {
  SupervisedRun run;
  run.phase_since = run.moved_at = run.counted_until = now;
  run.ranks.resize(static_cast<size_t>(o.ranks));
  run.hosts.resize(o.hosts.size());
  const auto used = static_cast<int64_t>(o.hosts.size()) - o.spares;
  MR_CHECK(used > 0 && o.ranks > 0);
  // Neighbours on one host, as the slot tree likes it.
  const int64_t each = (o.ranks + used - 1) / used;
  for (int64_t r = 0; r < o.ranks; ++r) {
    run.ranks[static_cast<size_t>(r)].due = now;
    run.ranks[static_cast<size_t>(r)].host = r / each;
    run.hosts[static_cast<size_t>(r / each)].in_use = true;
  }
  run.watch = RankWatch::initial(o.ranks);
  run.next_incident = o.first_incident;
  return run;
}

SupervisedRun saved_run(double now, const Json& saved) {
  SupervisedRun run;
  state_from_json(saved, &run);
  // While nobody watched, nobody was seen to hang.
  RankWatch::leave_out(std::max(0.0, now - run.saved_at), &run.watch);
  if (run.saved_at <= now) return run;
  // The clock began anew, with the machine: no process of before is there, and an hour is over.
  run.uses.clear();
  run.phase_since = run.moved_at = run.counted_until = run.restart_due = now;
  run.left_since = -1;
  for (RankStatus& r : run.ranks) r.due = now;
  for (RankWatch::Record& r : run.watch.ranks) r = {};
  for (Incident& i : run.open) {
    i.begin = i.detected = now;
    i.started = i.meeting = i.loading = i.computing = -1;
  }
  for (Incident& i : run.over) {
    for (double* moment : {&i.begin, &i.detected, &i.started, &i.meeting, &i.loading, &i.computing})
      if (*moment >= 0) *moment += now - i.end;
    i.end = now;
  }
  return run;
}

// What this reading does not say is as it was.
HostReading later_reading(const HostReading& before, HostReading r) {
  const auto keep = [](auto* value, auto was) {
    if (*value < 0) *value = was;
  };
  keep(&r.memory_total, before.memory_total);
  keep(&r.memory_available, before.memory_available);
  keep(&r.memory_pressure, before.memory_pressure);
  keep(&r.oom_kills, before.oom_kills);
  keep(&r.disk_free, before.disk_free);
  keep(&r.memory_folder_free, before.memory_folder_free);
  keep(&r.edac_corrected, before.edac_corrected);
  keep(&r.edac_uncorrected, before.edac_uncorrected);
  keep(&r.temperature, before.temperature);
  keep(&r.temperature_limit, before.temperature_limit);
  keep(&r.throttles, before.throttles);
  if (r.nics.empty()) r.nics = before.nics;
  return r;
}

}  // namespace

Supervisor::Supervisor(double now, const SuperviseOptions& options)
    : options_(options), run_(initial_run(now, options)), watch_(options_, run_.watch), now_(now) {}

Supervisor::Supervisor(double now, const SuperviseOptions& options, const Json& saved)
    : options_(options), run_(saved_run(now, saved)), watch_(options_, run_.watch), now_(now) {
  MR_CHECK(static_cast<int64_t>(run_.ranks.size()) == options.ranks);
}

Json Supervisor::save(double now) const {
  SupervisedRun run = run_;
  run.saved_at = now;
  run.watch = watch_.state();
  return state_to_json(run);
}

// Who did not look, or does not hear, sees nobody move. Where the supervisor's machine stood still its ranks had no
// more time than it had, to move, to save or to end.
void Supervisor::pass_time(double seconds) {
  const double looked = std::min(seconds, kMostBetweenEvents), away = seconds - looked;
  run_.phase_since += away;
  run_.moved_at += away;
  if (run_.left_since >= 0) run_.left_since += away;
  watch_.leave_out(hears_all_watched() ? away : seconds);
  for (HostRecord& h : run_.hosts) h.unheard += looked;
}

bool Supervisor::hears_all_watched() const {
  for (size_t r = 0; r < run_.ranks.size(); ++r) {
    const auto host = static_cast<size_t>(run_.ranks[r].host);
    const bool may_be_silent =
        watch_.record(static_cast<int>(r)).heard && !is_this_host(options_.hosts[host]);
    if (may_be_silent && run_.hosts[host].unheard > kMostUnheard) return false;
  }
  return true;
}

// The host that an event comes from; -1: none.
int64_t Supervisor::speaker(const RunEvent& event) const {
  return std::visit(
      [this](const auto& e) -> int64_t {
        using Event = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<Event, HostRead>) return e.reading.host;
        if constexpr (std::is_same_v<Event, HostBack>) return e.host;
        if constexpr (requires { e.rank; }) return run_.ranks[static_cast<size_t>(e.rank)].host;
        return -1;
      },
      event);
}

std::vector<RunEffect> Supervisor::handle(double now, const RunEvent& event) {
  pass_time(std::max(0.0, now - now_));
  now_ = now;
  effects_.clear();
  if (is_over()) return {};
  if (const int64_t from = speaker(event); from >= 0) host(from).unheard = 0;
  std::visit([this](const auto& e) { on(e); }, event);
  write_over(false);
  look_for_hangs();
  look_for_left_behind();
  go_on_restarting();
  go_on_stopping();
  start_due_ranks();
  return std::move(effects_);
}

void Supervisor::log(Level level, const char* name, std::string fields) {
  effects_.push_back(WriteLog{level, name, std::move(fields)});
}

std::string Supervisor::host_name(int64_t host) const {
  return options_.hosts[static_cast<size_t>(host)];
}

bool Supervisor::anyone(RankPhase phase) const {
  return std::any_of(run_.ranks.begin(), run_.ranks.end(),
                     [&](const RankStatus& r) { return r.phase == phase; });
}

bool Supervisor::anyone_alive() const {
  return anyone(RankPhase::kStarting) || anyone(RankPhase::kRunning);
}

void Supervisor::on(const RankStarted& e) {
  RankStatus& r = rank(e.rank);
  const bool found_again = r.phase == RankPhase::kRunning && r.pid == e.pid;
  r.phase = RankPhase::kRunning;
  r.pid = e.pid;
  if (found_again) return;
  watch_.begin(now_, e.rank);
  log(Level::kInfo, "supervise.rank_started",
      fmt::format("rank={} host={} pid={} start={}", e.rank, host_name(r.host), e.pid, r.starts));
  // A program that tells no steps has come back once it runs.
  if (!options_.tells_steps && run_.step == 0 && run_.phase == RunPhase::kGoing)
    close_incidents({.step = 1}, now_);
}

void Supervisor::on(const RankStartFailed& e) {
  RankStatus& r = rank(e.rank);
  r.phase = RankPhase::kEnded;
  r.pid = 0;
  ++r.barren;
  if (run_.phase == RunPhase::kStopping) return;
  const Case c = {
      .fault = RunFault::kStartFailed, .rank = e.rank, .evidence = {e.reason}, .begin = now_};
  if (!e.lasting) return decide(c);
  Incident* incident = open_incident(c);
  act(c, RunAction::kStop, incident);
}

void Supervisor::on(const RankEnded& e) {
  RankStatus& r = rank(e.rank);
  if (!is_alive(r)) return;
  const bool was_killed = r.was_killed, told_kill = r.told == SIGKILL;
  const RunFault killed_for = r.killed_for;
  r.phase = RankPhase::kEnded;
  r.pid = 0;
  r.exit_code = e.exit_code, r.signal = e.signal;
  r.was_killed = false;
  r.told = 0;
  const RankWatch::Record& seen = watch_.record(e.rank);
  const bool by_time = !seen.heard || (!options_.tells_steps && seen.beat.step == 0);
  if (by_time && now_ - seen.step_at >= options_.steady_seconds) r.barren = 0;
  watch_.end(e.rank);
  if (e.exit_code == 0) {
    r.phase = RankPhase::kDone;
    if (run_.phase == RunPhase::kGoing && !anyone_alive() && !anyone(RankPhase::kWaiting) &&
        !anyone(RankPhase::kEnded))
      finish(0, "all ranks have ended");
    return;
  }
  if (run_.phase == RunPhase::kStopping) return;
  if (told_kill && run_.phase == RunPhase::kRestarting) return;
  ++r.barren;
  Case c = {.fault = was_killed ? killed_for : classify(e),
            .rank = e.rank,
            .evidence = {},
            .begin = now_,
            .exit_code = e.exit_code};
  c.evidence.push_back(e.signal != 0 ? fmt::format("rank {} ended by signal {}", e.rank, e.signal)
                       : e.exit_code >= 0
                           ? fmt::format("rank {} ended with exit code {}", e.rank, e.exit_code)
                           : fmt::format("rank {} is gone", e.rank));
  for (const std::string& line : e.last_lines) c.evidence.push_back(line);
  if (c.fault == RunFault::kPeerLost && !run_.open.empty()) return take_as_consequence(c);
  decide(c);
}

void Supervisor::on(const RankBeat& e) {
  RankStatus& r = rank(e.rank);
  if (r.phase != RankPhase::kRunning) return;
  const RankWatch::Record before = watch_.record(e.rank);
  watch_.observe(now_, e.rank, e.beat);
  mark_phases(e.rank, e.beat);
  // A step counts as one only within a process: a checkpoint that is taken up is none.
  const Activity was = before.beat.activity;
  const bool was_in =
      was != Activity::kLoading && was != Activity::kStarting && was != Activity::kMeeting;
  if (before.heard && was_in && e.beat.step > before.beat.step) {
    for (RankStatus& other : run_.ranks) other.barren = 0;
    if (e.beat.step > run_.step) {
      run_.step = e.beat.step;
      run_.moved_at = now_;
    }
    if (run_.phase == RunPhase::kGoing) close_incidents(e.beat, r.started);
  }
  if (watch_.is_slow(e.rank))
    note({.fault = RunFault::kStraggler,
          .rank = e.rank,
          .evidence = {fmt::format("rank {} computes {:.3f} s of a step", e.rank,
                                   e.beat.compute_seconds)},
          .begin = now_},
         RecoveryLevel::kStep);
}

void Supervisor::on(const RankLogged& e) {
  struct Told {
    const char* name;
    RunFault fault;
    RecoveryLevel level;
  };
  constexpr Told kTold[] = {
      {"rails.lost", RunFault::kLinkLost, RecoveryLevel::kLink},
      {"step.bad", RunFault::kBadStep, RecoveryLevel::kStep},
      {"run.rolled_back", RunFault::kRollback, RecoveryLevel::kStep},
      {"checkpoint.failed", RunFault::kSaveFailed, RecoveryLevel::kStep},
      {"memory.refused", RunFault::kMemoryLow, RecoveryLevel::kStep},
  };
  if (e.line.name == "rails.resumed") note_held(e);
  for (const Told& told : kTold) {
    if (e.line.name != told.name) continue;
    note({.fault = told.fault,
          .rank = e.rank,
          .evidence = {fmt::format("{} {}", e.line.name, e.line.text)},
          .begin = now_},
         told.level);
  }
}

// Steps need all ranks of the group, so those that are not heard take part in them.
bool Supervisor::goes_on_unheard(const HostLost& e) const {
  const double patience = std::max(options_.host_seconds / 2, 2 * watch_.median_step());
  return e.since > 0 && run_.phase == RunPhase::kGoing && run_.moved_at > e.since &&
         now_ - run_.moved_at < patience;
}

void Supervisor::on(const HostLost& e) {
  HostRecord& record = host(e.host);
  if (record.lost || goes_on_unheard(e)) return;
  record.silent = true;
  log(Level::kWarning, "supervise.host_lost",
      fmt::format("host={} reason=\"{}\"", host_name(e.host), printable(e.reason, 1024)));
  int first = -1;
  for (int r = 0; r < static_cast<int>(run_.ranks.size()); ++r) {
    if (rank(r).host != e.host || rank(r).phase == RankPhase::kDone) continue;
    if (first < 0) first = r;
    rank(r).phase = RankPhase::kEnded;
    rank(r).pid = 0;
    rank(r).was_killed = false;
    watch_.end(r);
  }
  if (first < 0 || run_.phase == RunPhase::kStopping) {
    record.lost = true;
    return;
  }
  // Its ranks seemed to hang before: that was this.
  const auto is_of_it = [&](const Incident& i) {
    return i.rank >= 0 && rank(static_cast<int>(i.rank)).host == e.host && i.decision.empty();
  };
  const auto seemed = std::find_if(run_.open.begin(), run_.open.end(), is_of_it);
  if (seemed != run_.open.end()) {
    run_.open.erase(std::remove_if(seemed + 1, run_.open.end(), is_of_it), run_.open.end());
    seemed->fault = RunFault::kHostLost;
    seemed->rank = first;
  }
  decide({.fault = RunFault::kHostLost,
          .rank = first,
          .evidence = {fmt::format("host {}: {}", host_name(e.host), e.reason)},
          .begin = e.since > 0 ? std::min(now_, std::max(e.since, run_.moved_at)) : now_});
}

// A host that was lost is a spare from now on, or takes its ranks again if nobody else has them.
void Supervisor::on(const HostBack& e) {
  HostRecord& record = host(e.host);
  if (!record.silent || !record.lost) return;
  record = {.in_use = record.in_use};
  log(Level::kInfo, "supervise.host_back", fmt::format("host={}", host_name(e.host)));
  for (RankStatus& r : run_.ranks) {
    if (r.host != e.host || r.phase != RankPhase::kAbsent) continue;
    r.phase = RankPhase::kWaiting;
    r.due = now_;
  }
}

void Supervisor::on(const HostRead& e) {
  const auto known = std::find_if(run_.readings.begin(), run_.readings.end(),
                                  [&](const HostReading& r) { return r.host == e.reading.host; });
  if (known == run_.readings.end()) {
    run_.readings.push_back(e.reading);
    return compare_readings({.host = e.reading.host}, e.reading);
  }
  const HostReading before = *known;
  *known = later_reading(before, e.reading);
  compare_readings(before, *known);
}

void Supervisor::on(const StopAsked& e) {
  if (run_.asked) {
    log(Level::kWarning, "supervise.killing",
        fmt::format("signal={} reason=\"asked twice\"", e.signal));
    run_.killed = true;
    return tell_alive(SIGKILL);
  }
  run_.asked = true;
  log(Level::kInfo, "supervise.stopping", fmt::format("signal={} reason=\"asked to\"", e.signal));
  const bool was_stopping = run_.phase == RunPhase::kStopping;
  if (!was_stopping) {
    run_.exit_code = kExitInterrupted;
    run_.reason = fmt::format("signal {}", e.signal);
  }
  run_.phase = RunPhase::kStopping;
  run_.phase_since = now_;
  run_.gentle = false;
  for (RankStatus& r : run_.ranks) {  // who is not there has nothing to save
    if (!is_alive(r)) r.exit_code = kExitInterrupted;
  }
  tell_alive(SIGTERM);
}

void Supervisor::tell_alive(int signal) {
  for (int r = 0; r < static_cast<int>(run_.ranks.size()); ++r) {
    RankStatus& one = rank(r);
    if (one.phase != RankPhase::kRunning || one.told == signal || one.told == SIGKILL) continue;
    one.told = signal;
    effects_.push_back(SignalRank{r, one.pid, signal});
  }
}

void Supervisor::look_for_hangs() {
  if (run_.phase != RunPhase::kGoing) return;
  const RankHang hang = watch_.find_hang(now_);
  if (hang.rank < 0 || rank(hang.rank).was_killed) return;
  RankStatus& r = rank(hang.rank);
  if (r.phase != RankPhase::kRunning) return;
  r.was_killed = true;
  r.killed_for = hang.stopped ? RunFault::kStopped : RunFault::kHang;
  open_incident({.fault = r.killed_for,
                 .rank = hang.rank,
                 .evidence = {fmt::format("rank {}: {}", hang.rank, hang.evidence)},
                 .begin = hang.since});
  effects_.push_back(SignalRank{hang.rank, r.pid, SIGKILL});
}

// Whoever is there looks for ranks to meet, and none is about to come.
bool Supervisor::all_wait_to_meet() const {
  for (int r = 0; r < static_cast<int>(run_.ranks.size()); ++r) {
    const RankStatus& one = run_.ranks[static_cast<size_t>(r)];
    const RankWatch::Record& seen = watch_.record(r);
    if (one.phase == RankPhase::kWaiting || one.phase == RankPhase::kStarting) return false;
    if (one.phase != RankPhase::kRunning) continue;
    if (!seen.heard || seen.beat.activity != Activity::kMeeting) return false;
  }
  return anyone_alive();
}

// Some are done, and the others wait to meet them. Who was behind the door when the run ended has been told.
bool Supervisor::is_left_behind() const {
  return run_.phase == RunPhase::kGoing && anyone(RankPhase::kDone) && all_wait_to_meet();
}

// A rank was lost in the last moment, and its successor came too late: it would wait for all until its start fails. All
// begin again, find the last checkpoint, and end.
void Supervisor::look_for_left_behind() {
  if (!is_left_behind()) {
    run_.left_since = -1;
    return;
  }
  if (run_.left_since < 0) run_.left_since = now_;
  if (now_ - run_.left_since < options_.grace_seconds) return;
  run_.left_since = -1;
  for (Incident& i : run_.open) i.level = std::max(i.level, RecoveryLevel::kRestart);
  log(Level::kWarning, "supervise.left_behind",
      fmt::format("seconds={:.1f} action=\"all start again\"", options_.grace_seconds));
  restart_all(now_);
  tell_alive(SIGKILL);
}

void Supervisor::go_on_restarting() {
  if (run_.phase != RunPhase::kRestarting) return;
  if (anyone_alive()) {
    const bool is_over = now_ - run_.phase_since >= options_.grace_seconds;
    if (is_over || all_wait_to_meet()) tell_alive(SIGKILL);
    return;
  }
  run_.phase = RunPhase::kGoing;
  run_.phase_since = now_;
  for (RankStatus& r : run_.ranks) {
    if (r.phase == RankPhase::kAbsent) continue;
    r.phase = RankPhase::kWaiting;
    r.due = std::max(now_, run_.restart_due);
  }
}

void Supervisor::go_on_stopping() {
  if (run_.phase != RunPhase::kStopping) return;
  const double since = now_ - run_.phase_since;
  if (since >= options_.stop_seconds) {
    run_.killed = run_.killed || anyone(RankPhase::kRunning);
    tell_alive(SIGKILL);
  } else if (run_.killed) {
    tell_alive(SIGKILL);
  } else if (run_.asked || (!run_.gentle && since >= options_.grace_seconds)) {
    tell_alive(SIGTERM);
  }
  if (anyone_alive()) return;
  if (!run_.asked || run_.exit_code != kExitInterrupted)
    return finish(static_cast<int>(run_.exit_code), run_.reason);
  int code = 0;
  for (const RankStatus& r : run_.ranks) {
    if (r.phase == RankPhase::kDone || r.phase == RankPhase::kAbsent) continue;
    if (code == 0) code = kExitInterrupted;
    const bool saved = r.exit_code == kExitInterrupted || r.starts == 0;
    const int own = r.exit_code > 0 ? static_cast<int>(r.exit_code)
                                    : (options_.speaks_codes ? kExitPeerLost
                                                             : 128 + static_cast<int>(r.signal));
    if (!saved && !run_.killed) code = own;
  }
  finish(code, run_.reason);
}

void Supervisor::start_due_ranks() {
  if (run_.phase != RunPhase::kGoing) return;
  for (int r = 0; r < static_cast<int>(run_.ranks.size()); ++r) {
    RankStatus& one = rank(r);
    if (one.phase != RankPhase::kWaiting || one.due > now_) continue;
    one.phase = settle(one) ? RankPhase::kStarting : RankPhase::kAbsent;
    if (one.phase == RankPhase::kAbsent) continue;
    one.told = 0;
    one.started = now_;
    effects_.emplace_back(StartRank{r, static_cast<int>(one.host), static_cast<int>(one.starts)});
    ++one.starts;
    for (Incident& i : run_.open) {
      if (i.rank == r && i.started < 0) i.started = now_;
    }
  }
}

void Supervisor::finish(int exit_code, const std::string& reason) {
  close_all("the run ended before it got further");
  run_.phase = RunPhase::kOver;
  run_.exit_code = exit_code;
  run_.reason = reason;
  log(exit_code == 0 || exit_code == kExitInterrupted ? Level::kInfo : Level::kError,
      "supervise.ended",
      fmt::format("exit={} step={} reason=\"{}\"", exit_code, run_.step, reason));
  effects_.push_back(FinishRun{exit_code, reason});
}

}  // namespace moraine
