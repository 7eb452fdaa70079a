// `moraine plan`: what a run will take and lose, without running it: memory, time, interruptions.
#include <algorithm>
#include <deque>

#include "base/error.h"
#include "base/json.h"
#include "base/named_file.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/placement_flags.h"
#include "cli/plan_cluster.h"
#include "cli/plan_reliability.h"
#include "cli/plan_shape.h"
#include "cli/plan_step.h"
#include "comm/absent_transport.h"
#include "infer/rank_steps.h"
#include "infer/step_rows.h"
#include "kernels/gpu/open_device.h"
#include "model/loaded_model.h"
#include "train/auto_dtype.h"
#include "train/check_device_config.h"
#include "train/complete_config.h"
#include "train/run_memory.h"

namespace moraine {

namespace {

struct PlanFlags {
  std::string action, config_path, model_path;
  std::vector<std::string> assignments;
  bool json = false, share_cache = false;
  PlacementFlags placement;
  int64_t ranks = 1, rank = 0, phase = 0, context = 0, sequences = 1;
  LoadOptions load;
  ReliabilityFlags reliability;
  PlanStepFlags step;
  PlanClusterFlags cluster;
  PlanShapeFlags shape;
};

// The run's config, with vocabulary and type.
RunConfig read_planned_config(const PlanFlags& f) {
  FileSystem& fs = posix_file_system();
  SettingsTable settings =
      SettingsTable::parse(read_named_file(fs, "plan --config", f.config_path), f.config_path);
  for (const std::string& assignment : f.assignments) settings.set(assignment);
  RunConfig config = read_run_config(settings);
  const bool has_data =
      fs.exists(join_path(config.phases.front().train.front().path, kDatasetManifestName));
  if (has_data || !config.train.init.empty()) config = complete_config(fs, config);
  if (config.model.vocab_size == 0) {
    throw_error(
        Code::kInvalidArgument,
        "plan {}: model.vocab_size is not given and {} is not built yet; set model.vocab_size",
        f.action, config.phases.front().train.front().path);
  }
  check_positions(config);
  check_device_config(config, f.ranks);
  measure_dtype(config);
  return config;
}

void check_rank(const PlanFlags& f) {
  if (f.rank < f.ranks) return;
  throw_error(Code::kInvalidArgument, "--rank {}: there are ranks 0 to {}", f.rank, f.ranks - 1);
}

// A dry arena for each phase.
std::deque<Arena> plan_run(const PlanFlags& f, const RunConfig& config) {
  const Machine machine = f.step.machine_file.empty()
                              ? Machine()
                              : load_machine(posix_file_system(), f.step.machine_file);
  const auto phases = static_cast<int64_t>(config.phases.size());
  if (f.phase > phases)
    throw_error(Code::kInvalidArgument, "--phase {}: the run has phases 1 to {}", f.phase, phases);
  std::deque<Arena> plans;
  for (int64_t phase = 0; phase < phases; ++phase) {
    plans.emplace_back(Arena::Mode::kDry);
    plan_run_memory(
        plans.back(), config,
        {.ranks = static_cast<int>(f.ranks), .rank = static_cast<int>(f.rank), .phase = phase},
        machine);
  }
  return plans;
}

void plan_time(PlanFlags& f) {
  if (f.config_path.empty())
    throw_error(Code::kInvalidArgument, "--config is missing: wanted a run's TOML file");
  const RunConfig config = read_planned_config(f);
  if (f.action == "step") return print_plan_step(f.step, config, static_cast<int>(f.ranks), f.json);
  if (f.action == "shape")
    return print_plan_shape(f.shape, config,
                            {.machine_file = f.step.machine_file,
                             .memory_gib = f.step.memory_gib,
                             .ranks = static_cast<int>(f.ranks),
                             .json = f.json});
  f.cluster.interruptions = f.reliability.interruptions;
  print_plan_cluster(f.cluster, config, {f.step.imbalance, f.step.document, f.json});
}

Json plan_json(const Arena& arena) {
  Json rows = Json::array();
  for (const Arena::Entry& e : arena.entries())
    rows.push_back({{"name", e.name}, {"category", e.category}, {"bytes", e.bytes}});
  Json plan = {{"bytes", arena.bytes()}, {"buffers", rows}};
  if (arena.mapped_bytes() > 0) plan["mapped_bytes"] = arena.mapped_bytes();
  return plan;
}

void print_plan(const Arena& arena, bool json) {
  fmt::print("{}", json ? json_text(plan_json(arena)) + "\n" : memory_table(arena));
}

// One rank that answers, as `generate` and `serve` open a model.
void print_answers(PlanFlags f) {
  check_rank(f);
  const ModelDirectory directory =
      ModelDirectory::open(posix_file_system(), f.model_path, ModelDirectory::Verify::kAsRead);
  f.load.positions = f.context > 0 ? f.context : directory.config().max_positions;
  f.load.tokens = std::min(f.load.tokens, f.sequences * f.load.positions);
  const int64_t each = (f.load.positions + kPageRows - 1) / kPageRows;
  const std::unique_ptr<Transport> absent =
      make_absent_transport(static_cast<int>(f.ranks), static_cast<int>(f.rank));
  StepRanks ranks(*absent, 0, /*deadline=*/1);
  f.load.ranks = ranks.of_model(directory.config(), f.share_cache);
  const int64_t here = f.share_cache ? (each + f.ranks - 1) / f.ranks : each;
  f.load.cache = {.pages = here * f.sequences, .segments = f.sequences};
  f.load.placement = f.placement.placement();
  print_plan(LoadedModel::plan(directory, f.load)->arena(), f.json);
}

// One phase whole, of all what they take. note: of the CPU's plan for a device; or empty.
void print_phases(const std::deque<Arena>& plans, size_t phase, bool json,
                  const std::string& note) {
  if (json) {
    Json plan = plan_json(plans[phase]);
    if (!note.empty()) plan["note"] = note;
    if (plans.size() > 1) {
      plan["phase"] = phase + 1;
      for (const Arena& arena : plans) plan["phases_bytes"].push_back(arena.bytes());
    }
    fmt::print("{}\n", json_text(plan));
    return;
  }
  print_plan(plans[phase], false);
  if (!note.empty()) fmt::print("\n{}\n", note);
  if (plans.size() == 1) return;
  fmt::print("\nthis is phase {} of {}; each takes:", phase + 1, plans.size());
  for (const Arena& arena : plans)
    fmt::print(" {:.1f}", static_cast<double>(arena.bytes()) / (1 << 20));
  fmt::print(" MiB\n");
}

void print_run(const PlanFlags& f) {
  check_rank(f);
  const RunConfig config = read_planned_config(f);
  const std::deque<Arena> plans = plan_run(f, config);
  const auto most =
      std::max_element(plans.begin(), plans.end(),
                       [](const Arena& a, const Arena& b) { return a.bytes() < b.bytes(); });
  const auto phase =
      f.phase > 0 ? static_cast<size_t>(f.phase - 1) : static_cast<size_t>(most - plans.begin());
  print_phases(plans, phase, f.json, device_note(config));
}

}  // namespace

void cmd_plan(const CommandLine& line) {
  PlanFlags f;
  f.load.threads = 1;
  f.load.tokens = kStepRows;
  f.load.head = "auto";
  f.load.low_latency = "auto";
  Flags flags(
      "plan",
      "memory: every large buffer by name, without taking any: of a run, the table that "
      "`train` prints before step one; of a model, what generate and serve take. "
      "step: the time of a step on every feasible mesh, best first, from measured rates. "
      "shape: widths, heads, experts and micro-batches for a budget of parameters or time, and "
      "what near misses cost. "
      "cluster: the same on many hosts that a file describes, with what failures and slow hosts "
      "take. "
      "reliability: how often a run is interrupted, how often to save, and what share of the "
      "time is useful.");
  flags
      .choice_positional("action", &f.action, {"memory", "step", "shape", "cluster", "reliability"},
                         "memory, step, shape, cluster or reliability")
      .text("config", &f.config_path, "Config file of a run.")
      .text("model", &f.model_path, "Or a model that answers: any directory that `serve` takes.")
      .list("set", &f.assignments, "key=value that wins over the file.")
      .integer("ranks", &f.ranks, "Ranks of the run, or of those that answer.", 1, 65536)
      .integer("rank", &f.rank, "Whose memory.", 0, 65535)
      .integer("phase", &f.phase, "In which phase; 0: in the one that takes most.", 0, 1 << 20)
      .text("dtype", &f.load.dtype, "Of --model: f32 or bf16; default: as the weights are stored.")
      .choice("head", &f.load.head, {"auto", "full", "two-stage"}, "Of --model: as of `serve`.")
      .integer("rows", &f.load.tokens, "Of --model: most rows of a step.", 1, 1 << 20)
      .integer("context", &f.context, "Of --model: positions of a sequence; 0: the model's.", 0,
               1 << 30)
      .integer("sequences", &f.sequences, "Of --model: sequences of that length in the cache.", 1,
               1 << 20)
      .text("device", &f.load.device, std::string("memory, of --model: ") + gpu::kDeviceHelp)
      .flag("share-cache", &f.share_cache, "Of --model on several ranks: as of `serve`.")
      .choice("low-latency", &f.load.low_latency, {"auto", "on", "off"},
              "Of --model on several ranks: as of `serve`.")
      .flag("json", &f.json, "Print JSON.");
  declare_placement(flags, &f.placement);
  declare_plan_step(flags, &f.step);
  declare_plan_cluster(flags, &f.cluster);
  declare_plan_shape(flags, &f.shape);
  declare_reliability(flags, &f.reliability);
  if (!flags.parse(line)) return;
  if (flags.given("device") && (f.action != "memory" || f.model_path.empty()))
    throw_error(
        Code::kInvalidArgument,
        "--device {}: plan memory --model DIR alone takes a device; the plans of a run are the "
        "CPU's, and its device is train.device of its config; leave it out",
        f.load.device);
  if (f.action == "reliability") return print_reliability(f.reliability, f.ranks, f.json);
  if (f.action == "step" || f.action == "shape" || f.action == "cluster") return plan_time(f);
  if (f.config_path.empty() && f.model_path.empty())
    throw_error(Code::kInvalidArgument, "--config is missing: wanted --config FILE or --model DIR");
  if (!f.config_path.empty() && !f.model_path.empty())
    throw_error(Code::kInvalidArgument, "wanted one of --config FILE and --model DIR");
  if (f.config_path.empty()) return print_answers(f);
  print_run(f);
}

}  // namespace moraine
