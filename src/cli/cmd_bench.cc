// `moraine bench`: this machine's limits, and the share of them that the program reaches.
#include "base/error.h"
#include "base/pool.h"
#include "cli/bench_train.h"
#include "cli/cmd_bench_machine.h"
#include "cli/commands.h"
#include "cli/flags.h"

namespace moraine {

void cmd_bench(std::span<char*> args) {
  std::string what, config_path;
  std::vector<std::string> assignments;
  BenchOptions options;
  int64_t threads = 0, steps = 8;
  Flags flags("bench",
              "memory: bandwidth. gemm: peaks, and products at the model's shapes. train: a run's "
              "speed by operation.");
  flags.choice_positional("what", &what, {"memory", "gemm", "train"}, "memory, gemm or train")
      .flag("json", &options.json, "Print one JSON line per measurement.")
      .text("machine", &options.machine_file,
            "memory, gemm: machine file to write or update, which `train --machine` reads.")
      .text("config", &config_path, "train: config of the run.")
      .list("set", &assignments, "train: key=value that wins over the file.")
      .integer("steps", &steps, "train: optimizer steps measured.", 1, 1 << 20)
      .integer("threads", &threads, "0: one per usable core.", 0, 1024);
  if (!flags.parse(args)) return;
  options.threads = threads > 0 ? static_cast<int>(threads) : usable_cores();
  if (what == "memory") {
    bench_memory(options);
  } else if (what == "gemm") {
    bench_gemm(options);
  } else {
    if (config_path.empty())
      throw_error(Code::kInvalidArgument,
                  "bench train: --config is missing: wanted a run's TOML file");
    bench_train({.config_path = config_path,
                 .assignments = assignments,
                 .steps = steps,
                 .threads = threads,
                 .json = options.json});
  }
}

}  // namespace moraine
