// Decisions: from what a process ended with to what is done, by the table.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "base/check.h"
#include "base/printable.h"
#include "supervisor/supervisor.h"

namespace moraine {
namespace {

constexpr double kHour = 3600;
constexpr int kExitKilledBase = 128;

RunFault fault_of_signal(int signal) {
  switch (signal) {
    case SIGSEGV:
    case SIGABRT:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGTRAP:
    case SIGSYS:
      return RunFault::kCrash;
    default:
      return RunFault::kKilled;
  }
}

RunFault fault_of_code(int code) {
  switch (code) {
    case 2:
      return RunFault::kUsage;
    case 10:
    case 11:
      return RunFault::kInvalid;
    case 12:
      return RunFault::kCorrupt;
    case 13:
      return RunFault::kDisk;
    case 14:
      return RunFault::kDiverged;
    case 15:
    case 16:
      return RunFault::kPeerLost;
    case 17:
      return RunFault::kDevice;
    case 18:
      return RunFault::kInterrupted;
    case 20:
      return RunFault::kRankDiverged;
    default:
      return RunFault::kFailed;
  }
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += fmt::format("{}{}", all.empty() ? "" : "; ", text);
  return all;
}

}  // namespace

RunFault Supervisor::classify(const RankEnded& e) const {
  if (e.signal == 0 && e.exit_code < 0) return RunFault::kKilled;
  if (e.signal == 0) return options_.speaks_codes ? fault_of_code(e.exit_code) : RunFault::kFailed;
  if (e.signal != SIGKILL || run_.oom_at < 0) return fault_of_signal(e.signal);
  constexpr double kSoon = 10;  // the kernel kills, then counts, then we read
  return now_ - run_.oom_at < kSoon ? RunFault::kOutOfMemory : RunFault::kKilled;
}

int64_t Supervisor::uses_in_hour(RunFault fault) {
  std::erase_if(run_.uses, [&](const FaultUse& u) { return u.time <= now_ - kHour; });
  return std::count_if(run_.uses.begin(), run_.uses.end(),
                       [&](const FaultUse& u) { return u.fault == fault; });
}

double Supervisor::delay(const PolicyRow& row, int64_t barren, int64_t used) const {
  // The first time nothing is to be waited for, but where the world must change first.
  const int64_t times = row.waits_first ? std::max(barren, used + 1) : barren - 1;
  if (times <= 0) return 0;
  const double factor = static_cast<double>(int64_t{1} << std::min<int64_t>(times - 1, 30));
  return std::min(options_.backoff_seconds * factor, options_.backoff_seconds_max);
}

// A rank that lost a peer did not fail: what it lost is the fault, and is open already.
void Supervisor::take_as_consequence(const Case& c) {
  Incident& cause = run_.open.back();
  if (cause.evidence.size() < 32) cause.evidence.push_back(c.evidence.front());
  RankStatus& r = rank(c.rank);
  if (run_.phase == RunPhase::kRestarting) return;
  const PolicyRow& row = policy_row(RunFault::kPeerLost);
  if (r.barren > options_.attempts) {
    cause.level = RecoveryLevel::kStop;
    return stop(row.exit_code,
                fmt::format("rank {} ended {} times without a step: {}", c.rank, r.barren,
                            joined(c.evidence)),
                false);
  }
  if (options_.can_replace && !anyone(RankPhase::kDone))
    return start_again(c.rank, now_ + delay(row, r.barren, 0));
  restart_all(now_ + delay(row, r.barren, 0));
}

void Supervisor::decide(const Case& c) {
  const PolicyRow& row = policy_row(c.fault);
  // A hang opened it when the process was still to be killed; a peer's end came before its cause.
  Incident* incident = nullptr;
  for (Incident& i : run_.open) {
    const bool own = i.rank == c.rank && i.fault == c.fault && i.decision.empty();
    const bool heard_before = i.fault == RunFault::kPeerLost && i.rank != c.rank &&
                              now_ - i.detected < options_.grace_seconds;
    if (own || heard_before) incident = &i;
  }
  if (incident == nullptr) {
    incident = open_incident(c);
  } else {
    incident->fault = c.fault;
    incident->rank = c.rank;
    for (const std::string& text : c.evidence) incident->evidence.push_back(text);
  }
  const int64_t used = uses_in_hour(c.fault), most = limit_in_hour(row);
  run_.uses.push_back({c.fault, now_});
  const int64_t barren = rank(c.rank).barren;
  if (row.first == RunAction::kStop) return act(c, RunAction::kStop, incident);
  // What must wait for the world to change may try as often as the table says.
  const bool is_loop = barren > options_.attempts && !row.waits_first;
  if (used >= most || is_loop) {
    incident->evidence.push_back(
        used >= most ? fmt::format("the {}th time in an hour; the limit is {}", used + 1, most)
                     : fmt::format("rank {} ended {} times without a step; the limit is {}", c.rank,
                                   barren, options_.attempts));
    return act(c, RunAction::kStop, incident);
  }
  act(c, 2 * barren > options_.attempts ? row.then : row.first, incident);
}

void Supervisor::act(const Case& c, RunAction action, Incident* incident) {
  const PolicyRow& row = policy_row(c.fault);
  const double due =
      now_ + (c.rank < 0 ? 0 : delay(row, rank(c.rank).barren, uses_in_hour(c.fault) - 1));
  if (action == RunAction::kMove) {
    const int64_t host = rank(c.rank).host;
    if (move_host(host)) {
      incident->decision = fmt::format("host {} is left out", host_name(host));
      incident->level = RecoveryLevel::kHost;
      log(Level::kWarning, "supervise.decided",
          fmt::format("incident={} fault={} action=move host={}", incident->id, row.name,
                      host_name(host)));
      return;
    }
    incident->evidence.emplace_back("no other host has room");
    action = row.then == RunAction::kNote ? RunAction::kNote : RunAction::kStop;
  }
  // Where ranks do not wait for a new one, or some have left already, all begin again.
  if (action == RunAction::kReplace && (!options_.can_replace || anyone(RankPhase::kDone)) &&
      options_.ranks > 1)
    action = RunAction::kRestartAll;
  incident->decision = action == RunAction::kReplace
                           ? fmt::format("start rank {} in {:.1f} s", c.rank, due - now_)
                           : fmt::format("{} in {:.1f} s", action_name(action), due - now_);
  if (action == RunAction::kStop) incident->decision = "stop";
  log(action == RunAction::kStop ? Level::kError : Level::kWarning, "supervise.decided",
      fmt::format("incident={} fault={} rank={} action=\"{}\" evidence=\"{}\"", incident->id,
                  row.name, c.rank, incident->decision,
                  printable(joined(incident->evidence), 1024)));
  effects_.push_back(
      RaiseAlert{c.fault, fmt::format("{}: {}", incident->evidence.front(), incident->decision)});
  switch (action) {
    case RunAction::kReplace:
      incident->level = RecoveryLevel::kReplace;
      return start_again(c.rank, due);
    case RunAction::kRestartAll:
      incident->level = RecoveryLevel::kRestart;
      return restart_all(due);
    case RunAction::kStop: {
      incident->level = RecoveryLevel::kStop;
      const bool gentle = c.fault == RunFault::kInterrupted || c.fault == RunFault::kDiverged;
      const int64_t signal = c.rank < 0 ? 0 : rank(c.rank).signal;
      int code = c.exit_code > 0 ? c.exit_code : row.exit_code;
      if (!options_.speaks_codes && c.exit_code <= 0 && signal > 0)
        code = kExitKilledBase + static_cast<int>(signal);
      return stop(code,
                  fmt::format("{}: {}", row.name, printable(joined(incident->evidence), 1024)),
                  gentle);
    }
    case RunAction::kMove:
    case RunAction::kNote:
      return;
  }
}

// Where the rank is to be started. False: no host has room for it.
bool Supervisor::settle(RankStatus& r) {
  while (host(r.host).lost && host(r.host).successor >= 0) r.host = host(r.host).successor;
  return !host(r.host).lost;
}

void Supervisor::start_again(int r, double due) {
  if (run_.phase != RunPhase::kGoing) return;
  MR_CHECK(!is_alive(rank(r)));
  rank(r).phase = settle(rank(r)) ? RankPhase::kWaiting : RankPhase::kAbsent;
  rank(r).due = due;
}

void Supervisor::restart_all(double due) {
  if (run_.phase == RunPhase::kGoing) {
    run_.phase = RunPhase::kRestarting;
    run_.phase_since = now_;
    run_.restart_due = due;
  }
  run_.restart_due = std::max(run_.restart_due, due);
  for (Incident& i : run_.open) i.generation = 0;  // new processes count anew
  for (RankStatus& r : run_.ranks) {
    if (r.phase == RankPhase::kWaiting) r.phase = RankPhase::kEnded;
  }
}

// Ranks of a host that is left out go to a spare; without one they stay away if the others can go on.
bool Supervisor::move_host(int64_t lost_host) {
  host(lost_host).lost = true;
  int64_t spare = -1;
  for (int64_t h = 0; h < static_cast<int64_t>(run_.hosts.size()) && spare < 0; ++h) {
    if (!host(h).in_use && !host(h).lost) spare = h;
  }
  const bool others = std::any_of(run_.ranks.begin(), run_.ranks.end(), [&](const RankStatus& r) {
    return r.host != lost_host && is_alive(r);
  });
  const bool had_first = rank(0).host == lost_host && rank(0).phase != RankPhase::kDone;
  if (spare < 0 &&
      (had_first || !options_.can_replace || !others)) {  // nobody meets without rank 0
    host(lost_host).lost = false;
    return false;
  }
  if (spare >= 0) {
    host(spare).in_use = true;
    host(lost_host).in_use = false;
    host(lost_host).successor = spare;
  }
  for (int r = 0; r < static_cast<int>(run_.ranks.size()); ++r) {
    RankStatus& one = rank(r);
    if (one.host != lost_host || one.phase == RankPhase::kDone) continue;
    if (is_alive(one)) {  // a device of the host failed, and this rank is there until it has ended
      one.was_killed = true;
      one.killed_for = RunFault::kPeerLost;
      if (one.phase == RankPhase::kRunning) effects_.push_back(SignalRank{r, one.pid, SIGKILL});
      continue;
    }
    one.phase = settle(one) ? RankPhase::kWaiting : RankPhase::kAbsent;
    one.due = now_;
  }
  // The others know rank 0 by an address that they were started with.
  if (!options_.can_replace || (had_first && rendezvous_moves(options_))) restart_all(now_);
  return true;
}

void Supervisor::stop(int exit_code, const std::string& reason, bool gentle) {
  if (run_.phase == RunPhase::kStopping) return;
  run_.phase = RunPhase::kStopping;
  run_.phase_since = now_;
  run_.exit_code = exit_code;
  run_.reason = reason;
  run_.gentle = gentle;
  log(Level::kError, "supervise.stopping", fmt::format("exit={} reason=\"{}\"", exit_code, reason));
}

}  // namespace moraine
