// RunEvent: what the supervisor hears of a run, as data.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/heartbeat.h"
#include "base/log.h"
#include "supervisor/host_reading.h"

namespace moraine {

// A rank's heartbeat page at one moment.
struct BeatSnapshot {
  int64_t generation = 0;
  int32_t rank = -1;  // in the group, which may be without some of the run's ranks; -1: not known
  Activity activity = Activity::kStarting;
  int32_t waits_for = -1;  // a rank in the group
  int64_t beats = 0, step = 0, steps_total = 0;
  double step_seconds = 0, compute_seconds = 0;
  double tokens_per_second = 0, loss = 0;  // shown; no decision depends on them
  bool stopped = false;                    // the kernel's state of the process is T
  int64_t stops = 0;                       // then: another number for each time that it was stopped
  int32_t held = 0;                        // as HeartbeatPage::held
  int64_t strangers = 0;                   // as HeartbeatPage::strangers
  // How long ago its process first met others, took up what was stored, was in a step; -1: not yet.
  double met_ago = -1, loaded_ago = -1, computed_ago = -1;
};

// A line of a rank's log: base/log.h.
struct LogEvent {
  Level level = Level::kInfo;
  std::string name;
  std::vector<std::pair<std::string, std::string>> fields;
  std::string text;  // of the fields, as it is
  std::string field(const std::string& key) const {
    for (const auto& [name_of, value] : fields)
      if (name_of == key) return value;
    return "";
  }
};

struct RankStarted {
  int rank;
  int64_t pid;
};
struct RankStartFailed {
  int rank;
  std::string reason;
  bool lasting;  // trying again does not help: no such program
};
// Neither exit code nor signal: not our child, and it has left no word.
struct RankEnded {
  int rank;
  int exit_code = -1;
  int signal = 0;
  std::vector<std::string> last_lines = {};  // of its log
};
struct RankBeat {
  int rank;
  BeatSnapshot beat;
};
struct RankLogged {
  int rank;
  LogEvent line;
};
// May be told again and again: of a host whose ranks go on without being heard nothing is decided.
struct HostLost {
  int host;
  std::string reason;
  double since = 0;  // nothing was heard of it; 0: it is gone for sure
};
struct
    HostBack {  // it answers, for the first time or again; it has no ranks of this run but those it was told
  int host;
};
struct HostRead {
  HostReading reading;
};
struct TimePassed {};
struct StopAsked {
  int signal;
};

using RunEvent = std::variant<RankStarted, RankStartFailed, RankEnded, RankBeat, RankLogged,
                              HostLost, HostBack, HostRead, TimePassed, StopAsked>;

}  // namespace moraine
