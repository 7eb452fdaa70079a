// `moraine bench`: this machine's limits, and the share of them that the program reaches.
#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/pool.h"
#include "bench/comm.h"
#include "bench/machine.h"
#include "bench/storage.h"
#include "bench/train.h"
#include "cli/commands.h"
#include "cli/flags.h"

namespace moraine {
namespace {

// "2,4,8"
std::vector<int64_t> parse_ranks(const std::string& text) {
  std::vector<int64_t> ranks;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    int64_t value = 0;
    const auto [rest, code] = std::from_chars(text.data() + at, text.data() + end, value);
    if (code != std::errc() || rest != text.data() + end || value < 1 || value > 64) {
      throw_error(Code::kInvalidArgument, "--ranks {}: wanted numbers from 1 to 64, as 2,4,8",
                  text);
    }
    ranks.push_back(value);
    at = end + 1;
  }
  return ranks;
}

// Not given: `otherwise`.
int64_t one_rank_count(const Flags& flags, const std::string& what, const std::string& text,
                       int64_t otherwise) {
  if (!flags.given("ranks")) return otherwise;
  const std::vector<int64_t> ranks = parse_ranks(text);
  if (ranks.size() == 1) return ranks.front();
  throw_error(Code::kInvalidArgument,
              "--ranks {}: bench {} measures one number of ranks; wanted one number", text, what);
}

}  // namespace

void cmd_bench(const CommandLine& line) {
  std::string what, config_path, ranks = "2,4,8", out = ".";
  std::vector<std::string> assignments;
  BenchOptions options;
  int64_t threads = 0, steps = 8, mib = 512, rounds = 7;
  Flags flags(
      "bench",
      "memory: bandwidth. gemm: peaks, and products at the model's shapes. train: a run's "
      "speed by operation. storage: saving and restoring a checkpoint from many ranks. comm: "
      "messages and collectives between ranks, also under mpirun.");
  flags
      .choice_positional("what", &what, {"memory", "gemm", "train", "storage", "comm"},
                         "memory, gemm, train, storage or comm")
      .flag("json", &options.json, "Print one JSON line per measurement.")
      .text("machine", &options.machine_file,
            "memory, gemm, comm: machine file to write or update, which `train --machine` reads.")
      .text("config", &config_path, "train: config of the run.")
      .list("set", &assignments, "train: key=value that wins over the file.")
      .integer("steps", &steps, "train: optimizer steps measured.", 1, 1 << 20)
      .text("ranks", &ranks,
            "storage: rank counts, as threads of this process. comm, train: one number; default "
            "one for each usable core (comm), 1 (train).")
      .integer("mib", &mib, "storage: MiB of state, all ranks together.", 8, 1 << 20)
      .integer("rounds", &rounds, "storage: rounds, of which medians are taken.", 1, 1000)
      .text("out", &out, "storage: a folder on the disk to measure.")
      .integer("threads", &threads, "0: one per usable core.", 0, 1024);
  if (!flags.parse(line)) return;
  options.threads = threads > 0 ? static_cast<int>(threads) : usable_cores();
  if (what == "memory") {
    bench_memory(options);
  } else if (what == "gemm") {
    bench_gemm(options);
  } else if (what == "comm") {
    bench_comm({.ranks = static_cast<int>(one_rank_count(flags, what, ranks, 0)),
                .json = options.json,
                .machine_file = options.machine_file});
  } else if (what == "storage") {
    bench_storage({.ranks = parse_ranks(ranks),
                   .mib = mib,
                   .rounds = rounds,
                   .out = out,
                   .json = options.json});
  } else {
    if (config_path.empty())
      throw_error(Code::kInvalidArgument,
                  "bench train: --config is missing: wanted a run's TOML file");
    bench_train({.config_path = config_path,
                 .assignments = assignments,
                 .steps = steps,
                 .threads = threads,
                 .ranks = one_rank_count(flags, what, ranks, 1),
                 .json = options.json});
  }
}

}  // namespace moraine
