// `moraine plan memory`: every large buffer of a run, by name, without taking any.
#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "train/auto_dtype.h"
#include "train/complete_config.h"
#include "train/run_memory.h"

namespace moraine {

void cmd_plan(const CommandLine& line) {
  std::string action, config_path;
  std::vector<std::string> assignments;
  bool json = false;
  int64_t ranks = 1, rank = 0;
  Flags flags("plan",
              "memory: the table that `train` prints before step one, made by the same code, "
              "without running.");
  flags.choice_positional("action", &action, {"memory"}, "memory")
      .required("config", &config_path, "Config file of the run.")
      .list("set", &assignments, "key=value that wins over the file.")
      .integer("ranks", &ranks, "Ranks of the run.", 1, 65536)
      .integer("rank", &rank, "Whose memory.", 0, 65535)
      .flag("json", &json, "Print JSON.");
  if (!flags.parse(line)) return;
  if (rank >= ranks)
    throw_error(Code::kInvalidArgument, "--rank {}: the run has ranks 0 to {}", rank, ranks - 1);
  FileSystem& fs = posix_file_system();
  SettingsTable settings = SettingsTable::parse(fs.read(config_path), config_path);
  for (const std::string& assignment : assignments) settings.set(assignment);
  RunConfig config = read_run_config(settings);
  const bool has_data =
      fs.exists(join_path(config.phases.front().train.front().path, kDatasetManifestName));
  if (has_data || !config.train.init.empty()) config = complete_config(fs, config);
  if (config.model.vocab_size == 0) {
    throw_error(
        Code::kInvalidArgument,
        "plan memory: model.vocab_size is not given and {} is not built yet; set model.vocab_size",
        config.phases.front().train.front().path);
  }
  measure_dtype(config);
  Arena arena(Arena::Mode::kDry);
  plan_run_memory(arena, config, static_cast<int>(ranks), static_cast<int>(rank));
  if (!json) {
    fmt::print("{}", memory_table(arena));
    return;
  }
  Json rows = Json::array();
  for (const Arena::Entry& e : arena.entries())
    rows.push_back({{"name", e.name}, {"category", e.category}, {"bytes", e.bytes}});
  fmt::print("{}\n", json_text({{"bytes", arena.bytes()}, {"buffers", rows}}));
}

}  // namespace moraine
