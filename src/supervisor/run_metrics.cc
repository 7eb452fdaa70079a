// One family after the other, in the text format 0.0.4.
#include "supervisor/run_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "supervisor/run_timeline.h"

namespace moraine {
namespace {

struct Family {
  const char* name;
  const char* type;
  const char* help;
};

void head(std::string* text, const Family& f) {
  *text += fmt::format("# HELP moraine_{0} {2}\n# TYPE moraine_{0} {1}\n", f.name, f.type, f.help);
}

void add_any(std::string* text, const Family& f, double value) {
  head(text, f);
  const std::string number = std::isnan(value)   ? "NaN"
                             : std::isinf(value) ? (value > 0 ? "+Inf" : "-Inf")
                                                 : fmt::format("{}", value);
  *text += fmt::format("moraine_{} {}\n", f.name, number);
}

void add(std::string* text, const Family& f, double value) {
  if (std::isfinite(value)) add_any(text, f, value);
}

// What a host does not show is not there.
void add_known(std::string* text, const Family& f, double value) {
  if (value >= 0) add(text, f, value);
}

std::string label_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

const char* state_of(char letter) {
  switch (letter) {
    case '-':
      return "absent";
    case 'd':
      return "done";
    case 'c':
      return "step";
    case 'o':
      return "observing";
    case 's':
      return "storing";
    case 'l':
      return "loading";
    case 'm':
      return "meeting";
    case 't':
      return "starting";
    default:
      return "gone";
  }
}

void add_run(std::string* text, const RunMetrics& m) {
  add(text, {"step", "gauge", "Optimizer steps done, the highest so far."},
      static_cast<double>(m.run.step));
  add(text, {"tokens_per_second", "gauge", "Of all ranks, in the last step; 0 while none is done."},
      m.tokens_per_second);
  if (m.loss) add_any(text, {"loss", "gauge", "Of the last step."}, *m.loss);
  add_known(text, {"generation", "gauge", "Of the group of ranks: grows when one is replaced."},
            static_cast<double>(m.generation));
  const Family ranks = {"ranks", "gauge", "Ranks by what they do."};
  head(text, ranks);
  for (const char letter : kRankLetters)
    *text += fmt::format("moraine_{}{{state=\"{}\"}} {}\n", ranks.name, state_of(letter),
                         std::count(m.letters.begin(), m.letters.end(), letter));
  int64_t again = 0;
  for (const RankStatus& r : m.run.ranks) again += std::max<int64_t>(r.starts - 1, 0);
  add(text, {"restarts_total", "counter", "Starts of processes beyond the first of each rank."},
      static_cast<double>(again));
  add(text, {"rails_strangers_total", "counter", "Sent away by ranks where they meet each other."},
      static_cast<double>(m.strangers));
  add(text, {"incidents_open", "gauge", "Faults that the run is not beyond yet."},
      static_cast<double>(m.run.open.size()));
}

void add_incidents(std::string* text, const RunMetrics& m) {
  std::map<std::tuple<std::string, std::string>, std::pair<int64_t, double>> sums;
  for (const LedgerEntry& e : m.entries) {
    auto& [incidents, seconds] = sums[{fault_name(e.fault), level_name(e.level)}];
    ++incidents;
    seconds += e.seconds_lost;
  }
  const Family incidents = {"incidents_total", "counter", "Faults that are over."};
  const Family lost = {"lost_seconds_total", "counter", "Time that they took from the run."};
  head(text, incidents);
  for (const auto& [of, sum] : sums)
    *text += fmt::format("moraine_{}{{fault=\"{}\",level=\"{}\"}} {}\n", incidents.name,
                         std::get<0>(of), std::get<1>(of), sum.first);
  head(text, lost);
  for (const auto& [of, sum] : sums)
    *text += fmt::format("moraine_{}{{fault=\"{}\",level=\"{}\"}} {}\n", lost.name, std::get<0>(of),
                         std::get<1>(of), sum.second);
}

void add_host(std::string* text, const HostReading& r) {
  const auto show = [&](const char* name, const char* type, const char* help, auto value) {
    add_known(text, {name, type, help}, static_cast<double>(value));
  };
  show("disk_free_bytes", "gauge", "Of the run's folder.", r.disk_free);
  show("memory_folder_free_bytes", "gauge", "Where copies in memory are.", r.memory_folder_free);
  show("memory_available_bytes", "gauge", "Of the host.", r.memory_available);
  show("memory_pressure_percent", "gauge", "Of ten seconds, with a task that waited for memory.",
       r.memory_pressure);
  show("oom_kills_total", "counter", "By the kernel, since boot.", r.oom_kills);
  show("edac_corrected_total", "counter", "Memory errors since boot.", r.edac_corrected);
  show("edac_uncorrected_total", "counter", "Memory errors since boot.", r.edac_uncorrected);
  show("temperature_celsius", "gauge", "Of the zone nearest to its limit.", r.temperature);
  show("core_throttles_total", "counter", "Times that cores were slowed down.", r.throttles);
  if (r.nics.empty()) return;
  head(text, {"nic_carrier", "gauge", "Whether an interface has its carrier."});
  for (const NicReading& nic : r.nics)
    *text += fmt::format("moraine_nic_carrier{{interface=\"{}\"}} {}\n", label_text(nic.name),
                         nic.carrier ? 1 : 0);
  head(text, {"nic_errors_total", "counter", "Of an interface, since it is there."});
  for (const NicReading& nic : r.nics)
    if (nic.errors >= 0)
      *text += fmt::format("moraine_nic_errors_total{{interface=\"{}\"}} {}\n",
                           label_text(nic.name), nic.errors);
}

}  // namespace

std::string run_metrics_text(const RunMetrics& metrics) {
  std::string text;
  add_run(&text, metrics);
  add_incidents(&text, metrics);
  if (!metrics.run.readings.empty()) add_host(&text, metrics.run.readings.front());
  return text;
}

}  // namespace moraine
