// Incidents: from when a fault is known until the run is beyond it, and what a host's sensors tell.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "supervisor/supervisor.h"

namespace moraine {
namespace {

// How long the ledger waits for a rank's word: by way of its host a beat is some tenths of a second old.
constexpr double kWordSeconds = 2;

// Before it is over, of an incident that is: what the new process has done since is no part of it.
std::vector<LedgerPhase> phases_of(const Incident& i, bool tells_steps) {
  if (i.started < 0) return {};
  std::vector<LedgerPhase> phases = {{"detection", i.detected - i.begin},
                                     {"decision", i.started - i.detected}};
  if (!tells_steps && i.computing < 0) {  // it is over once it runs
    phases.push_back({"respawn", i.end - i.started});
    return phases;
  }
  // Who meets nobody meets in no time: a moment that there was not is the next one.
  const double loading = i.loading < 0 ? i.computing : i.loading;
  const double meeting = i.meeting < 0 ? loading : i.meeting;
  double since = i.started;
  for (const auto& [name, moment] :
       {std::pair("respawn", meeting), std::pair("meeting", loading),
        std::pair("loading", i.computing), std::pair("first_step", i.end)}) {
    if (moment < 0 || moment > i.end) {  // the run went on, or ended, without it
      phases.push_back({"without", i.end - since});
      return phases;
    }
    phases.push_back({name, moment - since});
    since = moment;
  }
  return phases;
}

}  // namespace

Incident* Supervisor::open_incident(const Case& c) {
  Incident i;
  i.id = run_.next_incident++;
  i.fault = c.fault;
  i.rank = c.rank;
  if (c.rank >= 0) i.host = host_name(rank(c.rank).host);
  i.evidence = c.evidence;
  i.step = run_.step;
  for (int r = 0; r < static_cast<int>(run_.ranks.size()); ++r)
    i.generation = std::max(i.generation, watch_.record(r).beat.generation);
  i.begin = std::max(c.begin, run_.counted_until);
  i.detected = now_;
  log(Level::kWarning, "supervise.fault",
      fmt::format("incident={} fault={} rank={} step={} evidence=\"{}\"", i.id, fault_name(c.fault),
                  c.rank, i.step, c.evidence.empty() ? "" : c.evidence.front()));
  const auto behind =
      std::upper_bound(run_.open.begin(), run_.open.end(), i.begin,
                       [](double begin, const Incident& other) { return begin < other.begin; });
  return &*run_.open.insert(behind, std::move(i));
}

// What the run has absorbed: it is over when it is heard of.
void Supervisor::note(const Case& c, RecoveryLevel level, double seconds_lost) {
  const PolicyRow& row = policy_row(c.fault);
  if (uses_in_hour(c.fault) >= limit_in_hour(row)) return;
  run_.uses.push_back({c.fault, now_});
  LedgerEntry e;
  e.id = run_.next_incident++;
  e.fault = c.fault;
  e.rank = c.rank;
  if (c.rank >= 0) e.host = host_name(rank(c.rank).host);
  e.evidence = c.evidence;
  e.decision = action_name(RunAction::kNote);
  e.level = level;
  e.step = run_.step;
  e.begin = c.begin;
  e.end = now_;
  e.seconds_lost = seconds_lost;
  log(Level::kWarning, "supervise.noted",
      fmt::format("incident={} fault={} rank={} evidence=\"{}\"", e.id, row.name, c.rank,
                  c.evidence.front()));
  effects_.push_back(RaiseAlert{c.fault, c.evidence.front()});
  effects_.push_back(WriteLedger{std::move(e)});
}

// An operation was held, and has gone on. The ranks of both ends tell of it: what is counted already, by one of them or
// by another incident, is not written again.
void Supervisor::note_held(const RankLogged& e) {
  const double seconds = std::strtod(e.line.field("seconds").c_str(), nullptr);
  if (!(seconds > 0 && seconds < now_)) return;
  const double end = run_.open.empty() ? now_ : std::min(now_, run_.open.front().begin);
  const double lost = end - std::max(now_ - seconds, run_.counted_until);
  if (lost < seconds / 2) return;
  run_.counted_until = std::max(run_.counted_until, end);
  note({.fault = RunFault::kPeerSilent,
        .rank = e.rank,
        .evidence = {fmt::format("{} {}", e.line.name, e.line.text)},
        .begin = now_ - seconds},
       RecoveryLevel::kOperation, lost);
}

// The first one counts up to where the next begins.
void Supervisor::close_first(int64_t generation) {
  Incident i = run_.open.front();
  run_.open.erase(run_.open.begin());
  i.end = now_;
  i.end_generation = generation;
  const double until = run_.open.empty() ? now_ : std::min(now_, run_.open.front().begin);
  i.seconds_lost = std::max(0.0, until - std::max(i.begin, run_.counted_until));
  run_.counted_until = std::max(run_.counted_until, until);
  log(Level::kInfo, "supervise.closed",
      fmt::format("incident={} fault={} rank={} level={} seconds_lost={:.3f}", i.id,
                  fault_name(i.fault), i.rank, level_name(i.level), i.seconds_lost));
  effects_.push_back(
      RaiseAlert{i.fault, fmt::format("incident {} is over, made good by {}, {:.1f} s lost", i.id,
                                      level_name(i.level), i.seconds_lost)});
  run_.over.push_back(std::move(i));
}

// Another rank may tell of the step that ends an incident before the new process is heard, so the ledger waits.
void Supervisor::write_over(bool all) {
  const auto is_told = [&](const Incident& i) {
    if (all || !options_.tells_steps || i.rank < 0 || i.started < 0 || i.computing >= 0)
      return true;
    const RankStatus& r = rank(static_cast<int>(i.rank));
    return !is_alive(r) || r.started > i.end || now_ - i.end >= kWordSeconds;
  };
  for (const Incident& i : run_.over) {
    if (!is_told(i)) continue;
    LedgerEntry e;
    e.id = i.id;
    e.fault = i.fault;
    e.rank = static_cast<int>(i.rank);
    e.host = i.host;
    e.evidence = i.evidence;
    e.decision = i.decision;
    e.level = i.level;
    e.step = i.step;
    e.begin = i.begin;
    e.end = i.end;
    e.seconds_lost = i.seconds_lost;
    e.phases = phases_of(i, options_.tells_steps);
    effects_.push_back(WriteLedger{std::move(e)});
  }
  std::erase_if(run_.over, is_told);
}

void Supervisor::close_incidents(const BeatSnapshot& beat, double started) {
  // A group that has lost a rank may still end the step that it is in: only one of the next group counts. Generations
  // begin anew where no process of before is left; one that was started since is in a group since.
  const auto is_behind = [&](const Incident& i) {
    return i.step < beat.step && !i.decision.empty() &&
           (beat.generation == 0 || beat.generation > i.generation || started >= i.begin);
  };
  // In order of their begin, so a later one, of a higher step, ends nothing before its time.
  while (!run_.open.empty() && is_behind(run_.open.front())) close_first(beat.generation);
}

void Supervisor::close_all(const std::string& why) {
  while (!run_.open.empty()) {
    run_.open.front().evidence.push_back(why);
    close_first(0);
  }
  write_over(true);
}

void Supervisor::mark_phases(int r, const BeatSnapshot& beat) {
  const auto mark = [&](Incident& i) {
    if (i.rank != r || i.started < 0) return;
    // Whoever was in the group that did the step did its part before; clocks of hosts are not quite the same.
    const bool had_part = i.end >= 0 && beat.generation == i.end_generation;
    const double latest = had_part ? std::min(i.end, now_) : now_;
    const auto take = [&](double* moment, double ago) {
      if (*moment < 0 && ago >= 0) *moment = std::min(std::max(i.started, now_ - ago), latest);
    };
    take(&i.meeting, beat.met_ago);
    take(&i.loading, beat.loaded_ago);
    take(&i.computing, beat.computed_ago);
  };
  for (Incident& i : run_.open) mark(i);
  for (Incident& i : run_.over) mark(i);
}

void Supervisor::compare_readings(const HostReading& before, const HostReading& r) {
  const std::string host = host_name(r.host);
  const auto tell = [&](bool bad, bool was_bad, RunFault fault, std::string evidence) {
    if (bad && !was_bad)
      note({.fault = fault,
            .rank = -1,
            .evidence = {fmt::format("host {}: {}", host, evidence)},
            .begin = now_},
           RecoveryLevel::kStep);
  };
  const auto grew = [](int64_t from, int64_t to) { return from >= 0 && to > from; };
  const auto is_short = [](const HostReading& h) {
    constexpr double kLow = 0.05, kWaits = 20;
    const auto low = kLow * static_cast<double>(h.memory_total);
    return (h.memory_total > 0 && h.memory_available >= 0 &&
            static_cast<double>(h.memory_available) < low) ||
           h.memory_pressure > kWaits;
  };
  const auto is_full = [&](const HostReading& h) {
    return h.disk_free >= 0 && static_cast<double>(h.disk_free) < options_.disk_low_mib * 1048576;
  };
  const auto is_hot = [](const HostReading& h) {
    return h.temperature_limit > 0 && h.temperature >= h.temperature_limit;
  };
  if (grew(before.oom_kills, r.oom_kills)) run_.oom_at = now_;
  tell(is_short(r), is_short(before), RunFault::kMemoryLow,
       fmt::format("{} of {} MiB available, pressure {:.0f} %", r.memory_available >> 20,
                   r.memory_total >> 20, r.memory_pressure));
  tell(is_full(r), is_full(before), RunFault::kDiskLow,
       fmt::format("{} MiB free", r.disk_free >> 20));
  tell(is_hot(r), is_hot(before), RunFault::kHot,
       fmt::format("{:.0f} degrees, limit {:.0f}", r.temperature, r.temperature_limit));
  tell(grew(before.throttles, r.throttles), false, RunFault::kHot,
       fmt::format("{} times that cores were slowed down for their heat", r.throttles));
  tell(grew(before.edac_corrected, r.edac_corrected), false, RunFault::kEdacCorrected,
       fmt::format("{} corrected memory errors", r.edac_corrected));
  for (const NicReading& nic : r.nics) {
    for (const NicReading& old : before.nics) {
      if (old.name != nic.name) continue;
      tell(grew(old.errors, nic.errors), false, RunFault::kNicErrors,
           fmt::format("{}: {} errors", nic.name, nic.errors));
      tell(!nic.carrier, !old.carrier, RunFault::kCarrierLost,
           fmt::format("{} has no carrier", nic.name));
      tell(nic.carrier && old.carrier && grew(old.carrier_changes, nic.carrier_changes), false,
           RunFault::kCarrierLost, fmt::format("{} lost its carrier, and has it again", nic.name));
    }
  }
  if (grew(before.edac_uncorrected, r.edac_uncorrected)) leave_failing_host(r);
}

// An uncorrected memory error: what else it reads is not to be trusted.
void Supervisor::leave_failing_host(const HostReading& r) {
  for (int one = 0; one < static_cast<int>(run_.ranks.size()); ++one) {
    if (rank(one).host != r.host || run_.phase != RunPhase::kGoing) continue;
    return decide({.fault = RunFault::kEdacUncorrected,
                   .rank = one,
                   .evidence = {fmt::format("host {}: {} uncorrected memory errors",
                                            host_name(r.host), r.edac_uncorrected)},
                   .begin = now_});
  }
}

}  // namespace moraine
