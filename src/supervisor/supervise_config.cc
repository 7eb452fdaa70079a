// Fields of the supervisor's settings.
#include "supervisor/supervise_config.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>

#include "base/error.h"

namespace moraine {
namespace {

constexpr double kReplaceSeconds = 30;  // 0: ranks end when they lose one
constexpr int64_t kMemoryEverySteps = 1;

Fields supervise_fields(SuperviseConfig& config) {
  SuperviseOptions& o = config.decide;
  ShowOptions& show = config.show;
  return {
      {"ranks", &o.ranks, "", "Processes of the run.", 1, 4096},
      {"hosts", &o.hosts, "",
       "Where they are, the same number on each; `localhost`: here. Other hosts see the run's "
       "folder under the same name."},
      {"spares", &o.spares, "", "How many of the hosts, the last ones, are idle until one is lost.",
       0},
      {"launch", &o.launch, "",
       "Words before a command that is to run on another host, `{host}`: its name."},
      {"rendezvous", &o.rendezvous, "",
       "HOST:PORT where rank 0 listens; needed with other hosts. `{host}`: the host that rank 0 is "
       "on now."},
      {"secret_file", &o.secret_file, "",
       "File on every host whose content ranks must know to be let in; empty: none."},
      {"program", &o.program, "",
       "`moraine` on other hosts; empty: the path of the one that supervises."},
      {"host_seconds", &o.host_seconds, "seconds",
       "A host that is silent for so long, while the run stands still, is lost.", 1},
      {"hang_seconds", &o.hang_seconds, "seconds",
       "In a step: without a beat for so long a rank hangs.", 0.1},
      {"hang_factor", &o.hang_factor, "median steps", "And for so many steps as they were before.",
       1},
      {"start_seconds", &o.start_seconds, "seconds",
       "The same in anything else than a step: reading data, meeting, loading, saving.", 1},
      {"straggler_factor", &o.straggler_factor, "times",
       "A rank that computes so many times as long as the median one is slow.", 1},
      {"restarts", &o.restarts, "an hour", "Most starts for one cause; one more stops the run.", 0},
      {"attempts", &o.attempts, "", "Most ends of a rank in a row without a step between.", 1},
      {"steady_seconds", &o.steady_seconds, "seconds",
       "A program that tells no steps got on if it ran for so long.", 0},
      {"backoff_seconds", &o.backoff_seconds, "seconds",
       "Before the second start in a row; twice as long before each next one.", 0},
      {"backoff_seconds_max", &o.backoff_seconds_max, "seconds", "The longest of these.", 0},
      {"grace_seconds", &o.grace_seconds, "seconds",
       "For ranks to end by themselves when all are to start again (who only waits to meet others "
       "is ended at once); and to find each other when some are done already.",
       0},
      {"stop_seconds", &o.stop_seconds, "seconds", "For ranks to save when the run is to stop.", 1},
      {"disk_low_mib", &o.disk_low_mib, "MiB", "Less free in the run's folder is told.", 0},
      {"sensor_seconds", &show.sensor_seconds, "seconds",
       "Between two looks at the host's memory, disk, interfaces, error counters and heat; 0: "
       "none.",
       0},
      {"metrics_port", &show.metrics_port, "",
       "Port of 127.0.0.1 where /metrics is answered, for Prometheus; 0: none.", 0, 65535},
      {"webhook", &show.webhook, "",
       "Address, http or https, to which alerts are posted as JSON; empty: none."},
  };
}

// One key of a table that is the run's own.
void read_key(const SettingsTable& settings, const char* table, const Field& field) {
  const SettingsTable of_run = settings.table(table);
  of_run.read({field}, of_run.keys());
}

bool is_plain(const std::string& word) {
  constexpr std::string_view kSigns = "_.:@%+=,-/";
  return std::all_of(word.begin(), word.end(), [&](unsigned char c) {
    return std::isalnum(c) != 0 || kSigns.find(static_cast<char>(c)) != std::string_view::npos;
  });
}

void check_names(const SuperviseOptions& o) {
  std::set<std::string> names;
  for (const std::string& host : o.hosts) {
    if (!is_plain(host) || host.find('/') != std::string::npos || host.starts_with('-'))
      throw_error(Code::kInvalidArgument,
                  "supervise.hosts: found '{}'; wanted letters, digits and _ . : @ % + = , -",
                  host);
    if (!names.insert(is_this_host(host) ? "localhost" : host).second)
      throw_error(Code::kInvalidArgument, "supervise.hosts: found '{}' twice; wanted each once",
                  host);
  }
}

// One rank needs none, but what is given must be one.
void check_rendezvous(const std::string& address) {
  const size_t colon = address.rfind(':');
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  const bool is_port = !port.empty() && port.size() <= 5 &&
                       port.find_first_not_of("0123456789") == std::string::npos &&
                       std::stoi(port) > 0 && std::stoi(port) <= 65535;
  if (is_port && colon > 0) return;
  throw_error(Code::kInvalidArgument,
              "supervise.rendezvous: found '{}'; wanted HOST:PORT where rank 0 can listen and all "
              "hosts reach it",
              address);
}

double replace_seconds(const SettingsTable& settings) {
  double seconds = kReplaceSeconds;
  read_key(settings, "parallel", {"replace_seconds", &seconds, "seconds", "", 0});
  return seconds;
}

// In a peer's memory; 0: on disk only, and how often that is, is the run's own affair.
int64_t state_every_steps(const SettingsTable& settings) {
  int64_t steps = kMemoryEverySteps;
  read_key(settings, "checkpoint", {"memory_every_steps", &steps, "steps", "", 0});
  return steps;
}

struct Patience {
  int64_t attempts;
  double hold, interval;
};

// `train` refuses what is beyond its deadline as well, once for each rank, by keys that nobody set.
void check_patience(const SettingsTable& settings, double host_seconds, const Patience& p) {
  double deadline = 300;  // train/run_config.h
  read_key(settings, "parallel", {"deadline_seconds", &deadline, "seconds", "", 0.1});
  const double seconds = static_cast<double>(p.attempts) * (p.hold + p.interval);
  if (seconds <= deadline) return;
  throw_error(Code::kInvalidArgument,
              "supervise.host_seconds: found {}, for which ranks of a run with spares wait for a "
              "silent one: parallel.retry_attempts * (hold_seconds + retry_interval_seconds) = {} "
              "* ({} + {}) = {} s; wanted no more than parallel.deadline_seconds = {}",
              host_seconds, p.attempts, p.hold, p.interval, seconds, deadline);
}

// Who waits for a host for longer than it takes to give it up holds up its successor: what the config does not say of
// attempts * (hold + interval) is such that all of it is `seconds`.
void add_patience(const SettingsTable& settings, const SuperviseOptions& o,
                  std::vector<std::string>* added) {
  constexpr double kLeastHold = 0.5;  // train/run_config.cc
  const double seconds = o.host_seconds;
  int64_t attempts = 1;
  double interval = 0;
  read_key(settings, "parallel", {"retry_attempts", &attempts, "", "", 1});
  read_key(settings, "parallel", {"retry_interval_seconds", &interval, "seconds", "", 0});
  const double hold = std::max(kLeastHold, seconds / static_cast<double>(attempts) - interval);
  if (o.ranks > 1 && !settings.table("parallel").has("hold_seconds"))
    check_patience(settings, seconds, {attempts, hold, interval});
  const auto add = [&](const char* key, const std::string& value) {
    if (!settings.table("parallel").has(key))
      added->push_back(fmt::format("parallel.{}={}", key, value));
  };
  add("hold_seconds", fmt::format("{}", hold));
  add("retry_attempts", fmt::format("{}", attempts));
  add("retry_interval_seconds", fmt::format("{}", interval));
}

}  // namespace

SuperviseConfig read_supervise_config(const SettingsTable& settings) {
  SuperviseConfig config;
  settings.table("supervise").read(supervise_fields(config));
  config.decide.can_replace = replace_seconds(settings) > 0;
  read_key(settings, "checkpoint", {"memory_folder", &config.show.memory_folder, "", ""});
  config.show.state_every_steps = state_every_steps(settings);
  return config;
}

void check_hosts(const SuperviseOptions& o) {
  const auto hosts = static_cast<int64_t>(o.hosts.size()), used = hosts - o.spares;
  if (used < 1)
    throw_error(Code::kInvalidArgument,
                "supervise.spares: found {} of {} hosts; wanted one that is none at least",
                o.spares, hosts);
  if (o.ranks % used != 0)
    throw_error(Code::kInvalidArgument,
                "supervise.ranks: found {} for {} hosts; wanted the same number on each", o.ranks,
                used);
  check_names(o);
  if (!o.rendezvous.empty()) check_rendezvous(o.rendezvous);
  const auto here = std::count_if(o.hosts.begin(), o.hosts.end(), is_this_host);
  if (here == hosts) return;
  if (o.launch.empty())
    throw_error(Code::kInvalidArgument, "supervise.launch: found no word; wanted a program");
  if (!is_plain(o.program))
    throw_error(Code::kInvalidArgument,
                "supervise.program: found '{}'; wanted a path that a shell leaves as it is",
                o.program);
  if (o.ranks > 1) check_rendezvous(o.rendezvous);
  if (rendezvous_moves(o) && here > 0)
    throw_error(Code::kInvalidArgument,
                "supervise.rendezvous: found '{}' with this host as 'localhost'; wanted hosts by "
                "names that the others know",
                o.rendezvous);
}

std::string document_supervise_config() {
  SuperviseConfig config;
  return document_fields("supervise", supervise_fields(config));
}

std::vector<std::string> added_assignments(const SettingsTable& settings) {
  std::vector<std::string> added;
  if (kReplaceSeconds > 0 && !settings.table("parallel").has("replace_seconds"))
    added.push_back(fmt::format("parallel.replace_seconds={}", kReplaceSeconds));
  if (!settings.table("checkpoint").has("memory_every_steps"))
    added.push_back(fmt::format("checkpoint.memory_every_steps={}", kMemoryEverySteps));
  const SuperviseOptions options = read_supervise_config(settings).decide;
  if (options.spares > 0) add_patience(settings, options, &added);
  return added;
}

}  // namespace moraine
