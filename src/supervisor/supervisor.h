// Supervisor: decides what is done for a run whose processes come and go.
//
// A state machine: events in (run_event.h), effects out (run_effect.h), by the table in policy.h. No clock, no system
// calls, no threads: `now` is what the caller says, so a test may play a week in a second, and a supervisor that was
// killed goes on from its state as if it had never been away.
//
//   rank:  waiting -> starting -> running -> done | ended -> waiting ...
//   run:   going <-> restarting,  either -> stopping -> over
//
// A fault that takes work opens an incident; it is over once the run has done a step beyond the highest that it had
// done before, or ends. Seconds are lost from when a fault began to that step; of incidents that overlap the second
// begins to count where it begins and ends the first one's count, so that all of them add up to time that was lost.
//
// Never a second process for a rank: a start is given out only after the end of the one before was heard. Never a
// restart loop: `attempts` ends of a rank without a step between stop the run, and so do more in an hour than the table
// allows for their cause.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "supervisor/options.h"
#include "supervisor/rank_watch.h"
#include "supervisor/run_effect.h"
#include "supervisor/run_event.h"
#include "supervisor/supervised_run.h"

namespace moraine {

class Supervisor {
 public:
  // All ranks start at once.
  Supervisor(double now, const SuperviseOptions& options);
  // Goes on from save(). The caller then says which ranks are there (RankStarted) and which are not (RankEnded).
  Supervisor(double now, const SuperviseOptions& options, const Json& saved);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  std::vector<RunEffect> handle(double now, const RunEvent& event);

  Json save(double now) const;
  const SupervisedRun& run() const { return run_; }
  bool is_over() const { return run_.phase == RunPhase::kOver; }
  // Whether pages are worth reading often: the times of a recovery are being taken.
  bool has_open_incident() const { return !run_.open.empty() || !run_.over.empty(); }

 private:
  struct Case {  // what is known of a fault when it is decided about
    RunFault fault;
    int rank = -1;
    std::vector<std::string> evidence;
    double begin;
    int exit_code = -1;
  };

  // Events. supervisor.cc
  void on(const RankStarted& e);
  void on(const RankStartFailed& e);
  void on(const RankEnded& e);
  void on(const RankBeat& e);
  void on(const RankLogged& e);
  void on(const HostLost& e);
  void on(const HostBack& e);
  void on(const HostRead& e);
  void on(const TimePassed&) {}
  void on(const StopAsked& e);

  // What time brings. supervisor.cc
  void pass_time(double seconds);
  bool hears_all_watched() const;
  int64_t speaker(const RunEvent& event) const;
  void look_for_hangs();
  bool all_wait_to_meet() const;
  bool is_left_behind() const;
  void look_for_left_behind();
  void go_on_restarting();
  void go_on_stopping();
  void start_due_ranks();
  void tell_alive(int signal);
  void finish(int exit_code, const std::string& reason);

  // Decisions. decide.cc
  RunFault classify(const RankEnded& e) const;
  void decide(const Case& c);
  void take_as_consequence(const Case& c);
  void act(const Case& c, RunAction action, Incident* incident);
  bool move_host(int64_t lost_host);
  void restart_all(double due);
  void start_again(int rank, double due);
  bool settle(RankStatus& r);
  void stop(int exit_code, const std::string& reason, bool gentle);
  double delay(const PolicyRow& row, int64_t barren, int64_t used) const;

  // Incidents. incidents.cc
  Incident* open_incident(const Case& c);
  void note(const Case& c, RecoveryLevel level, double seconds_lost = 0);
  void note_held(const RankLogged& e);
  // Those that it is beyond; `started`: when its process was.
  void close_incidents(const BeatSnapshot& beat, double started);
  void close_all(const std::string& why);
  void close_first(int64_t generation);
  void write_over(bool all);
  void mark_phases(int rank, const BeatSnapshot& beat);
  int64_t uses_in_hour(RunFault fault);
  void compare_readings(const HostReading& before, const HostReading& r);
  void leave_failing_host(const HostReading& r);

  RankStatus& rank(int r) { return run_.ranks[static_cast<size_t>(r)]; }
  HostRecord& host(int64_t h) { return run_.hosts[static_cast<size_t>(h)]; }
  bool goes_on_unheard(const HostLost& e) const;
  bool is_alive(const RankStatus& r) const {
    return r.phase == RankPhase::kStarting || r.phase == RankPhase::kRunning;
  }
  bool anyone_alive() const;
  bool anyone(RankPhase phase) const;
  std::string host_name(int64_t host) const;
  int64_t limit_in_hour(const PolicyRow& row) const {
    return row.per_hour == kPerSetting ? options_.restarts : row.per_hour;
  }
  void log(Level level, const char* name, std::string fields);

  const SuperviseOptions options_;
  SupervisedRun run_;
  RankWatch watch_;
  double now_;
  std::vector<RunEffect> effects_;
};

}  // namespace moraine
