// `moraine train`: one run, from its config file to its last checkpoint.
#include <algorithm>
#include <csignal>
#include <ctime>

#include "base/asked_flip.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/named_file.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/on_ranks.h"
#include "cli/version.h"
#include "kernels/gpu/open_device.h"
#include "train/groups.h"
#include "train/loop.h"
#include "train/run_mesh.h"

namespace moraine {
namespace {

std::atomic<int> stop_signal{0};
std::atomic<int64_t> asked_milliseconds{0};  // when; 0: not yet

// `timeout`, launchers and batch systems signal a process and its group at once: one request.
constexpr int64_t kOneRequestMilliseconds = 1000;

// The first signal asks for a save; one that comes later ends the process as usual, but for the
// processor time limit, of which the kernel reminds every second.
extern "C" void on_stop_signal(int signal) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t milliseconds = now.tv_sec * 1000 + now.tv_nsec / 1'000'000 + 1;
  int64_t asked = 0;
  if (asked_milliseconds.compare_exchange_strong(asked, milliseconds)) {
    stop_signal.store(signal);
  } else if (signal != SIGXCPU && milliseconds - asked > kOneRequestMilliseconds) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

// Signals that ask for a save. A closed terminal is none if the program was started to outlive it
// (nohup). A log that nobody reads any more (SIGPIPE) is no reason to lose a run.
void listen_for_signals() {
  std::signal(SIGTERM, on_stop_signal);
  std::signal(SIGINT, on_stop_signal);
  std::signal(SIGXCPU, on_stop_signal);
  if (std::signal(SIGHUP, on_stop_signal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
}

void print_done(const RunResult& result) {
  fmt::print("done step={} tokens={} loss={:.6f} hash={} checkpoint={}\n", result.step,
             result.tokens, result.loss, result.hash, result.checkpoint);
}

// Who waits for a rank that waits for a silent one must not lose patience first.
RailTimes rail_times(const ParallelConfig& c) {
  RailTimes times;
  times.hold_seconds = c.hold_seconds;
  times.interval_seconds = c.retry_interval_seconds;
  times.resends = static_cast<int>(c.retry_attempts);
  if (times.patience_seconds() > c.deadline_seconds)
    throw_error(
        Code::kInvalidArgument,
        "parallel.deadline_seconds: found {} while a silent rank is waited for retry_attempts "
        "* (hold_seconds + retry_interval_seconds) = {} * ({} + {}) = {} s; wanted no less "
        "than that, or less of these",
        c.deadline_seconds, c.retry_attempts, c.hold_seconds, c.retry_interval_seconds,
        times.patience_seconds());
  return times;
}

// A lost rank ends the run.
void train_once(FileSystem& fs, const RunConfig& config, const RunOptions& options,
                const RankFlags& ranks) {
  RunResult result;
  bool first = false;
  on_ranks("train", ranks, [&](Transport& transport) {
    const bool mine = transport.rank() == 0;
    if (mine) say("{}\n", version_line());
    const RunResult of_rank = train(fs, config, options, transport);
    if (!mine) return;
    first = true;
    result = of_rank;
  });
  if (first) print_done(result);
}

// A lost rank is replaced.
void train_and_replace(FileSystem& fs, const RunConfig& config, const RunOptions& options,
                       const RankFlags& ranks) {
  RailsOptions rails = rails_options("train", ranks);
  rails.most_ranks = [&config](int present) { return most_ranks(config, present); };
  set_log_rank(rails.rank);
  if (rails.rank == 0) say("{}\n", version_line());
  RailsJob job(rails);
  try {
    const RunResult result = train_in_groups(fs, config, options, job);
    if (rails.rank == 0) print_done(result);
  } catch (const Error& e) {
    log_failed(e);
    throw;
  }
}

}  // namespace

void cmd_train(const CommandLine& line) {
  std::string config_path;
  std::vector<std::string> assignments;
  RunOptions options;
  options.out = "runs/default";
  std::string device;
  bool document = false;
  bool profile = false;
  int64_t profile_steps = 8;
  RankFlags ranks;
  Flags flags(
      "train",
      "Pretrain or adapt a model. The config is TOML; docs/configuration.md lists its keys.");
  flags.text("config", &config_path, "Config file.")
      .list("set", &assignments,
            "key=value that wins over the file, for example train.tokens=1000000.")
      .text("out", &options.out,
            "Run directory: checkpoints, metrics.jsonl, tensorboard/, report.html.")
      .text("resume", &options.resume,
            "auto: go on with what is in --out; never; or a checkpoint directory.")
      .text("machine", &options.machine_file,
            "Machine file of `moraine bench`; empty: measure quickly.")
      .flag(
          "profile", &profile,
          "Print where the time of the first steps goes and what binds; write trace.json in --out.")
      .integer("profile-steps", &profile_steps, "Steps that --profile measures, behind the first.",
               1, 1000)
      .text("device", &device, gpu::kDeviceHelp)
      .flag("document", &document, "Print the list of config keys as Markdown and exit.");
  declare_ranks(flags, "train", &ranks);
  if (!flags.parse(line)) return;
  if (document) {
    fmt::print("{}", document_run_config());
    return;
  }
  if (config_path.empty())
    throw_error(Code::kInvalidArgument, "--config is missing: wanted a TOML file");
  if (flags.given("profile-steps") && !profile) {
    throw_error(Code::kInvalidArgument, "--profile-steps without --profile: give both, or neither");
  }
  if (profile) options.profile_steps = profile_steps;
  FileSystem& fs = posix_file_system();
  SettingsTable settings =
      SettingsTable::parse(read_named_file(fs, "train --config", config_path), config_path);
  for (const std::string& assignment : assignments) settings.set(assignment);
  if (flags.given("device")) settings.set(fmt::format("train.device=\"{}\"", device));
  const RunConfig config = read_run_config(settings);
  listen_for_signals();
  obey_flips();
  options.stop_signal = ranks.stop_signal = &stop_signal;
  options.is_watched = is_watched();
  if (!ranks.rendezvous.empty()) ranks.times = rail_times(config.parallel);
  ranks.replace_seconds = config.parallel.replace_seconds;
  if (ranks.rails.empty() && !ranks.rendezvous.empty()) ranks.rails = config.parallel.rails;
  if (ranks.rendezvous.empty() || ranks.replace_seconds == 0)
    train_once(fs, config, options, ranks);
  else
    train_and_replace(fs, config, options, ranks);
}

}  // namespace moraine
