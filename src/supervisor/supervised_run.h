// SupervisedRun: all that the supervisor knows of a run; what it keeps on disk to find it again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "supervisor/host_reading.h"
#include "supervisor/policy.h"
#include "supervisor/rank_watch.h"

namespace moraine {

enum class RankPhase : uint8_t {
  kWaiting,   // to be started at `due`
  kStarting,  // its start was given out
  kRunning,
  kEnded,   // and nothing starts it: the run stops, or all start together
  kDone,    // exit 0
  kAbsent,  // no host has room for it: the run goes on without
};

enum class RunPhase : uint8_t {
  kGoing,
  kRestarting,  // all ranks are to end, then all start
  kStopping,    // all ranks are to end
  kOver,
};

struct RankStatus {
  RankPhase phase = RankPhase::kWaiting;
  double due = 0;
  int64_t pid = 0;
  int64_t host = 0;
  double started = 0;  // when it was last
  int64_t starts = 0;
  int64_t barren = 0;       // ends in a row without a step between
  bool was_killed = false;  // by us, for `killed_for`
  RunFault killed_for = RunFault::kHang;
  int64_t told = 0;                    // the last signal that we sent because of the run
  int64_t exit_code = -1, signal = 0;  // of the last end
};

struct HostRecord {
  bool in_use = false;
  bool lost = false;       // or left out
  bool silent = false;     // and that is why it is lost: it may come back
  int64_t successor = -1;  // that has its ranks; -1: none
  double unheard = 0;      // seconds in which the supervisor looked, and nothing came from there
};

struct Incident {
  int64_t id = 0;
  RunFault fault = RunFault::kCrash;
  int64_t rank = -1;
  std::string host;
  std::vector<std::string> evidence;
  std::string decision;
  RecoveryLevel level = RecoveryLevel::kReplace;
  int64_t step = 0;
  int64_t generation = 0;  // of the group that it hit; 0: of none
  double begin = 0, detected = 0;
  double started = -1, meeting = -1, loading = -1, computing = -1;  // of its rank; -1: not yet
  double end = -1, seconds_lost = 0;                                // once it is over
  int64_t end_generation = 0;  // of the group whose step ended it
};

struct FaultUse {
  RunFault fault = RunFault::kCrash;
  double time = 0;
};

struct SupervisedRun {
  double saved_at = 0;
  RunPhase phase = RunPhase::kGoing;
  double phase_since = 0;
  double restart_due = 0;
  bool asked = false;   // to stop, by a signal to us
  bool gentle = false;  // ranks end by themselves: they save
  bool killed = false;  // by our own SIGKILL at the stop
  int64_t exit_code = 0;
  std::string reason;
  int64_t step = 0;  // highest that was done
  double moved_at = 0;
  double left_since = -1;    // whoever is left waits for those who are done; -1: nobody does
  double oom_at = -1;        // the kernel killed for memory; -1: never
  double counted_until = 0;  // seconds lost before are in the ledger
  int64_t next_incident = 1;
  std::vector<Incident> open;  // by `begin`
  std::vector<Incident> over;  // that the ledger waits with, for the word of the new process
  std::vector<FaultUse> uses;  // of the last hour
  std::vector<RankStatus> ranks;
  std::vector<HostRecord> hosts;
  std::vector<HostReading> readings;  // the last of each host
  RankWatch::State watch;
};

template <class Visitor>
void each_field(Visitor& visit, RankStatus& r) {
  visit("phase", r.phase);
  visit("due", r.due);
  visit("pid", r.pid);
  visit("host", r.host);
  visit("started", r.started);
  visit("starts", r.starts);
  visit("barren", r.barren);
  visit("was_killed", r.was_killed);
  visit("killed_for", r.killed_for);
  visit("told", r.told);
  visit("exit_code", r.exit_code);
  visit("signal", r.signal);
}

template <class Visitor>
void each_field(Visitor& visit, HostRecord& h) {
  visit("in_use", h.in_use);
  visit("lost", h.lost);
  visit("silent", h.silent);
  visit("successor", h.successor);
  visit("unheard", h.unheard);
}

template <class Visitor>
void each_field(Visitor& visit, Incident& i) {
  visit("id", i.id);
  visit("fault", i.fault);
  visit("rank", i.rank);
  visit("host", i.host);
  visit("evidence", i.evidence);
  visit("decision", i.decision);
  visit("level", i.level);
  visit("step", i.step);
  visit("generation", i.generation);
  visit("begin", i.begin);
  visit("detected", i.detected);
  visit("started", i.started);
  visit("meeting", i.meeting);
  visit("loading", i.loading);
  visit("computing", i.computing);
  visit("end", i.end);
  visit("seconds_lost", i.seconds_lost);
  visit("end_generation", i.end_generation);
}

template <class Visitor>
void each_field(Visitor& visit, FaultUse& u) {
  visit("fault", u.fault);
  visit("time", u.time);
}

template <class Visitor>
void each_field(Visitor& visit, SupervisedRun& s) {
  visit("saved_at", s.saved_at);
  visit("phase", s.phase);
  visit("phase_since", s.phase_since);
  visit("restart_due", s.restart_due);
  visit("asked", s.asked);
  visit("gentle", s.gentle);
  visit("killed", s.killed);
  visit("exit_code", s.exit_code);
  visit("reason", s.reason);
  visit("step", s.step);
  visit("moved_at", s.moved_at);
  visit("left_since", s.left_since);
  visit("oom_at", s.oom_at);
  visit("counted_until", s.counted_until);
  visit("next_incident", s.next_incident);
  visit("open", s.open);
  visit("over", s.over);
  visit("uses", s.uses);
  visit("ranks", s.ranks);
  visit("hosts", s.hosts);
  visit("readings", s.readings);
  visit("watch", s.watch);
}

}  // namespace moraine
