// `moraine chaos`: seeded, real faults against a supervised run, and the hash of a quiet one beside its own.
#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/process.h"
#include "chaos/chaos.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "train/run_config.h"

namespace moraine {
namespace {

struct ChaosFlags {
  std::string config, out = "runs/chaos", quiet_hash;
  std::vector<std::string> assignments, kinds;
  int64_t seed = 1, faults = 10, ranks = 2, links = 0;
  double every_seconds = 5, hang_seconds = 3;
  bool json = false;
};

RunConfig config_of(const ChaosFlags& f) {
  SettingsTable settings = SettingsTable::parse(posix_file_system().read(f.config), f.config);
  for (const std::string& assignment : f.assignments) settings.set(assignment);
  return read_run_config(settings);
}

// Experts or sequences are divided in some phase.
bool divides_more_than_batch(const RunConfig& config) {
  return config.parallel.expert > 1 || config.parallel.context > 1 ||
         std::any_of(config.phases.begin(), config.phases.end(), [](const PhaseConfig& phase) {
           return phase.expert > 1 || phase.context > 1;
         });
}

// What is missing for the quiet hash to come of it for certain; empty: nothing. A wrong bit of gradients is found in
// slots that another rank computes as well: with one slot a rank, in every step, these are all.
std::string what_is_missing(ChaosFault fault, const RunConfig& config, int64_t ranks) {
  if (fault == ChaosFault::kFlipWeights && config.train.verify_every_steps == 0)
    return "found train.verify_every_steps = 0; wanted it above 0";
  if (fault != ChaosFault::kFlipGradients) return "";
  if (ranks < 2) return fmt::format("found --ranks {}; wanted another rank to compare with", ranks);
  if (config.train.slots != ranks)
    return fmt::format("found train.slots = {} with {} ranks; wanted one for each",
                       config.train.slots, ranks);
  return divides_more_than_batch(config) ? "found parallel.expert or parallel.context above 1; "
                                           "wanted whole experts and sequences"
                                         : "";
}

bool is_drawn(ChaosFault fault, const RunConfig& config, const ChaosFlags& f) {
  return what_is_missing(fault, config, f.ranks).empty() && (f.links > 0 || !is_of_a_link(fault));
}

std::vector<ChaosFault> kinds_of(const RunConfig& config, const ChaosFlags& f) {
  std::vector<ChaosFault> kinds;
  for (const std::string& kind : f.kinds) {
    kinds.push_back(chaos_fault(kind));
    const std::string missing = what_is_missing(kinds.back(), config, f.ranks);
    if (!missing.empty())
      throw_error(Code::kInvalidArgument,
                  "chaos --kind {}: {}; else a wrong bit may stay in the answer", kind, missing);
  }
  if (!kinds.empty()) return kinds;
  for (const ChaosKind& kind : chaos_kinds()) {
    if (is_drawn(kind.fault, config, f)) kinds.push_back(kind.fault);
  }
  return kinds;
}

ChaosOptions chaos_options(const ChaosFlags& f) {
  ChaosOptions o;
  o.program = own_program();
  o.train = {"--config", f.config};
  for (const std::string& assignment : f.assignments) {
    o.train.emplace_back("--set");
    o.train.push_back(assignment);
  }
  // A sequence over ranks is summed in another order than on one (docs/distributed.md), and experts need their ranks:
  // then the quiet run has the same mesh, on threads.
  const RunConfig config = config_of(f);
  if (divides_more_than_batch(config) || config.parallel.reduce_dtype != ReduceDType::kF32)
    o.quiet = {"--ranks", fmt::format("{}", f.ranks)};
  // Budgets are for nights, not for storms.
  for (const std::string& assignment :
       {fmt::format("supervise.hang_seconds={}", f.hang_seconds),
        std::string("supervise.restarts=1000000"), std::string("supervise.attempts=50"),
        std::string("supervise.backoff_seconds=0.05"),
        std::string("supervise.backoff_seconds_max=1")}) {
    o.supervise.emplace_back("--set");
    o.supervise.push_back(assignment);
  }
  o.out = f.out;
  o.quiet_hash = f.quiet_hash;
  o.plan.seed = static_cast<uint64_t>(f.seed);
  o.plan.faults = f.faults;
  o.plan.mean_seconds = f.every_seconds;
  o.plan.ranks = static_cast<int>(f.ranks);
  o.plan.kinds = kinds_of(config, f);
  if (std::count(o.plan.kinds.begin(), o.plan.kinds.end(), ChaosFault::kFlipGradients) > 0) {
    o.supervise.emplace_back("--set");
    o.supervise.emplace_back("train.verify_every_steps=1");
  }
  o.links = static_cast<int>(f.links);
  o.tell = [](const std::string& line) { say("{}\n", line); };
  return o;
}

void print_json(const ChaosResult& r) {
  Json rows = Json::array();
  for (const ChaosRow& row : r.rows) {
    Json levels = Json::object();
    for (const auto& [level, count] : row.levels) levels[level] = count;
    rows.push_back(Json::object({{"fault", chaos_name(row.fault)},
                                 {"planned", row.planned},
                                 {"done", row.done},
                                 {"seconds_lost", row.seconds_lost},
                                 {"seconds_most", row.seconds_most},
                                 {"absorbed_at", levels}}));
  }
  fmt::print("{}\n", json_text(Json::object({{"faults", rows},
                                             {"quiet_hash", r.quiet_hash},
                                             {"storm_hash", r.storm_hash},
                                             {"equal", r.quiet_hash == r.storm_hash},
                                             {"tested", r.has_tested()},
                                             {"storm_seconds", r.storm_seconds},
                                             {"seconds_lost", r.lost_seconds}})));
}

std::string kinds_text() {
  std::string text = "One kind of fault to draw from; again for each; default: all. ";
  for (const ChaosKind& kind : chaos_kinds()) text += fmt::format("{}: {}. ", kind.name, kind.what);
  return text;
}

}  // namespace

void cmd_chaos(const CommandLine& line) {
  ChaosFlags f;
  Flags flags(
      "chaos",
      "Do real faults, by a seed, to a training run that `moraine supervise` keeps alive on "
      "this machine, and compare its hash with that of a quiet run.");
  flags.text("config", &f.config, "Config file of the run. It must end by itself.")
      .list("set", &f.assignments, "key=value that wins over the file.")
      .text("out", &f.out, "Folder for both runs: quiet/ and storm/.")
      .text("quiet-hash", &f.quiet_hash, "Hash of the quiet run, if it is known: none is made.")
      .integer("ranks", &f.ranks, "Processes of the supervised run.", 1, 64)
      .integer("seed", &f.seed, "Of the faults.", 0, int64_t{1} << 53)
      .integer("faults", &f.faults, "At most so many, or until the run has ended.", 1, 1'000'000)
      .integer("links", &f.links,
               "Ranks on two hosts, network namespaces joined by so many links, which are cut too; "
               "needs root.",
               0, 7)
      .number("every-seconds", &f.every_seconds, "Mean time between faults.")
      .number("hang-seconds", &f.hang_seconds, "supervise.hang_seconds of the supervised run.")
      .list("kind", &f.kinds, kinds_text())
      .flag("json", &f.json, "Print the table as one JSON object.");
  if (!flags.parse(line)) return;
  if (f.config.empty())
    throw_error(Code::kInvalidArgument, "chaos: --config is missing: wanted a TOML file");
  if (!(f.every_seconds > 0) || !(f.hang_seconds > 0))
    throw_error(Code::kInvalidArgument,
                "chaos --every-seconds {} --hang-seconds {}: wanted more than 0", f.every_seconds,
                f.hang_seconds);
  const ChaosResult result = run_chaos(posix_file_system(), chaos_options(f));
  const bool is_equal = result.quiet_hash == result.storm_hash;
  if (f.json) {
    print_json(result);
  } else {
    fmt::print("{}storm: {:.1f} s, of which {:.1f} s lost; quiet hash {}, storm hash {}: {}\n",
               chaos_table_text(result.rows), result.storm_seconds, result.lost_seconds,
               result.quiet_hash, result.storm_hash,
               !is_equal             ? "NOT EQUAL"
               : result.has_tested() ? "equal"
                                     : "equal, but NOTHING WAS TESTED");
  }
  if (is_equal && result.has_tested()) return;
  if (is_equal)
    throw_error(Code::kInvalidArgument,
                "chaos: nothing was tested: of {} faults that were due before the run ended none "
                "could be done; wanted a longer run or a shorter --every-seconds than {}",
                result.faults.size(), f.every_seconds);
  throw_error(Code::kDiverged,
              "chaos: the run that was disturbed has another hash ({}) than the "
              "quiet one ({}); both are in {}",
              result.storm_hash, result.quiet_hash, f.out);
}

}  // namespace moraine
