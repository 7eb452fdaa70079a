// `moraine bench`: this machine's limits, and the share of them that the program reaches.
#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/pool.h"
#include "bench/comm.h"
#include "bench/experts.h"
#include "bench/gpu.h"
#include "bench/growth.h"
#include "bench/http_load.h"
#include "bench/inference.h"
#include "bench/machine.h"
#include "bench/masks.h"
#include "bench/rails.h"
#include "bench/serve.h"
#include "bench/step.h"
#include "bench/storage.h"
#include "bench/train.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/progress.h"
#include "infer/step_rows.h"

namespace moraine {
namespace {

// "2,4,8", each from `least` to `most`.
struct NumberList {
  const char* flag;
  int64_t least, most;
};
std::vector<int64_t> parse_numbers(const std::string& text, const NumberList& list) {
  std::vector<int64_t> ranks;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    int64_t value = 0;
    const auto [rest, code] = std::from_chars(text.data() + at, text.data() + end, value);
    if (code != std::errc() || rest != text.data() + end || value < list.least ||
        value > list.most) {
      throw_error(Code::kInvalidArgument, "--{} {}: wanted numbers from {} to {}, as 2,4,8",
                  list.flag, text, list.least, list.most);
    }
    ranks.push_back(value);
    at = end + 1;
  }
  return ranks;
}

std::vector<int64_t> parse_ranks(const std::string& text) {
  return parse_numbers(text, {.flag = "ranks", .least = 1, .most = 64});
}

// "0.5,1.2", each from 0 to 4.
std::vector<double> parse_exponents(const std::string& text) {
  std::vector<double> exponents;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    double value = -1;
    const auto [rest, code] = std::from_chars(text.data() + at, text.data() + end, value);
    if (code != std::errc() || rest != text.data() + end || !(value >= 0 && value <= 4))
      throw_error(Code::kInvalidArgument, "--zipf {}: wanted exponents from 0 to 4, as 0.5,1.2",
                  text);
    exponents.push_back(value);
    at = end + 1;
  }
  return exponents;
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

// Who heeds flags of a run's config, and of a model.
constexpr const char* kOfRuns = "train, step, plan, growth, experts";
constexpr const char* kOfModels = "prefill, decode, serve, masks";

struct BenchFlags {
  std::string what, config_path, ranks = "2,4,8", out = ".", concurrency, tpot, tokenizer, prompts,
                                 url, api_key_file, device = "gpu", zipf = "0.5,0.8,1.2";
  std::vector<std::string> assignments;
  BenchOptions options;
  BenchServeOptions serve;
  BenchGrowthOptions growth = {};
  BenchRailsOptions rails = {};
  int64_t rails_rank = -1;
  bool experts_serve = false;
  int64_t threads = 0, steps = 8, mib = 512, rounds = 7, context = 512, rows = kStepRows;
};

// Of benches that take a model.
void declare_of_models(Flags& flags, BenchFlags& f) {
  flags.text("model", &f.serve.model_path, "prefill, decode, serve, masks: model that computes.")
      .heeded_by(kOfModels)
      .text("tokenizer", &f.tokenizer,
            "masks: tokenizer.json, or its folder, to measure without a model.")
      .heeded_by("masks")
      .text("dtype", &f.serve.dtype,
            "prefill, decode, serve, masks: f32 or bf16; default: as the weights are stored.")
      .heeded_by(kOfModels)
      .choice("head", &f.serve.head, {"auto", "full", "two-stage"},
              "prefill, decode, serve: as of `moraine serve`.")
      .heeded_by("prefill, decode, serve")
      .integer("prompt-tokens", &f.serve.prompt_tokens,
               "serve: of each request; default: 256, or what the model has room for.", 1, 1 << 20)
      .heeded_by("serve")
      .integer(
          "new-tokens", &f.serve.new_tokens,
          "serve, masks: of each answer; default: 64, or what the model has room for; masks 128.",
          2, 1 << 20)
      .heeded_by("serve, masks")
      .text("concurrency", &f.concurrency,
            "decode, serve, masks: sequences at a time, one load for each number.")
      .heeded_by("decode, serve, masks")
      .text("prompts", &f.prompts, "prefill: tokens of a prompt, as 512,2048,8192.")
      .heeded_by("prefill")
      .integer("rows", &f.rows, "prefill: most rows of a step, as of `moraine serve`.", 1, 1 << 20)
      .heeded_by("prefill")
      .integer("context", &f.context, "decode: positions before the first step.", 1, 1 << 24)
      .heeded_by("decode")
      .text("url", &f.url,
            "serve: a server that runs, as http://127.0.0.1:8080, to measure over HTTP; --model is "
            "then its name there.")
      .heeded_by("serve")
      .text("api-key-file", &f.api_key_file, "serve: with --url: a file whose first key is used.")
      .heeded_by("serve")
      .text("tpot-ms", &f.tpot,
            "serve: latency targets to compare, in ms, as 15,30,60,0; 0 is none.")
      .heeded_by("serve")
      .text("chart", &f.serve.chart,
            "serve, growth: HTML file with the chart of the targets, or of the costs.")
      .heeded_by("serve, growth");
}

void declare(Flags& flags, BenchFlags& f) {
  flags
      .choice_positional("what", &f.what,
                         {"memory", "gemm", "train", "step", "plan", "growth", "experts", "storage",
                          "comm", "rails", "prefill", "decode", "serve", "masks", "gpu"},
                         "memory, gemm, train, step, plan, growth, experts, storage, comm, rails, "
                         "prefill, decode, serve, masks or gpu")
      .flag("json", &f.options.json, "Print one JSON line per measurement.")
      .text("machine", &f.options.machine_file,
            "memory, gemm, comm, step: machine file to write or update, which `train --machine` "
            "and `plan` read; plan: to predict with, and to tell how well that went.")
      .heeded_by("memory, gemm, comm, step, plan")
      .text("config", &f.config_path,
            "train, step, plan, growth: config of the run. experts: likewise; default: a small "
            "model.")
      .heeded_by(kOfRuns)
      .list("set", &f.assignments,
            "train, step, plan, growth, experts: key=value that wins over the file.")
      .heeded_by(kOfRuns)
      .text("zipf", &f.zipf,
            "experts: exponents s; the k-th expert's share of the rows falls as 1 / k^s.")
      .heeded_by("experts")
      .flag("serve", &f.experts_serve, "experts: of ranks that serve, not train.")
      .heeded_by("experts")
      .list("of", &f.growth.what,
            "growth: what grows, of sequence, experts, batch, vocabulary; default: each in turn.")
      .heeded_by("growth")
      .integer("least", &f.growth.least, "growth: smallest value.", 1, 1 << 20)
      .heeded_by("growth")
      .integer("most", &f.growth.most, "growth: largest value.", 1, 1 << 20)
      .heeded_by("growth")
      .integer(
          "steps", &f.steps,
          "train, step: optimizer steps; experts: 12; plan, each: 3; growth, each: 2; decode: 32.",
          1, 1 << 20)
      .heeded_by("train, step, plan, growth, experts, decode")
      .text("ranks", &f.ranks,
            "storage, plan: rank counts, as threads of this process; default 2,4,8, of plan "
            "1,2,4,8. comm, train, step, experts: one number; one for each usable core (comm), 1 "
            "(train, step), 2 (experts).")
      .heeded_by("storage, plan, comm, train, step, experts")
      .integer("mib", &f.mib, "storage: MiB of state, all ranks together.", 8, 1 << 20)
      .heeded_by("storage")
      .integer("rounds", &f.rounds,
               "storage, rails, plan: rounds, of which medians are taken; plan: 1.", 1, 1000)
      .heeded_by("storage, rails, plan")
      .text("rendezvous", &f.rails.rendezvous,
            "rails: HOST:PORT of rank 0; empty: two processes of this host.")
      .heeded_by("rails")
      .integer("rank", &f.rails_rank, "rails: with --rendezvous: 0 or 1.", -1, 1)
      .heeded_by("rails")
      .list("rails", &f.rails.rails,
            "rails: network path to the other rank, once for each; default: two of the loopback.")
      .heeded_by("rails")
      .flag("sealed", &f.rails.sealed, "rails: frames have tags, as those of a job with a secret.")
      .heeded_by("rails")
      .integer("lost-of", &f.rails.lost_of,
               "rails: rate with 0 to N-1 of N limited links cut; needs root.", 0, 7)
      .heeded_by("rails")
      .integer("link-mbit", &f.rails.link_mbit, "rails: with --lost-of: Mb/s of each link.", 10,
               100000)
      .heeded_by("rails")
      .text("out", &f.out, "storage: a folder on the disk to measure.")
      .heeded_by("storage");
  declare_of_models(flags, f);
  flags.text("device", &f.device, "gpu: gpu, gpu:1 the second, or emulated:RULE, on small shapes.")
      .integer("threads", &f.threads,
               "0: one per usable core, of train for all ranks, of experts for each.", 0, 1024)
      .heeded_by("memory, gemm, train, step, plan, growth, experts, prefill, decode, serve, masks");
}

constexpr int64_t kMostRequests = 1024;  // at once

std::vector<int64_t> parse_concurrency(const BenchFlags& f, int64_t most) {
  return parse_numbers(f.concurrency, {.flag = "concurrency", .least = 1, .most = most});
}

void run_masks(const Flags& flags, const BenchFlags& f) {
  BenchMasksOptions o{.model_path = f.serve.model_path,
                      .tokenizer = f.tokenizer,
                      .dtype = f.serve.dtype,
                      .threads = f.threads,
                      .json = f.options.json};
  if (flags.given("new-tokens")) o.new_tokens = f.serve.new_tokens;
  if (!f.concurrency.empty()) o.concurrency = parse_concurrency(f, kMostRequests);
  bench_masks(o);
}

void run_inference(const Flags& flags, const BenchFlags& f) {
  BenchInferenceOptions o{.model_path = f.serve.model_path,
                          .dtype = f.serve.dtype,
                          .threads = f.threads,
                          .context = f.context,
                          .head = f.serve.head,
                          .json = f.options.json};
  if (flags.given("steps")) o.steps = f.steps;
  if (!f.concurrency.empty()) o.sequences = parse_concurrency(f, kMostSequences);
  o.rows = f.rows;
  if (!f.prompts.empty())
    o.prompts = parse_numbers(f.prompts, {.flag = "prompts", .least = 1, .most = 1 << 24});
  const bool prefill = f.what == "prefill";
  std::optional<ProgressLine> shown;
  o.progress = [&](const std::string& line, int64_t done, int64_t total) {
    if (done == 0) shown.emplace(line);
    shown->update(done, total, prefill ? "tokens" : "steps");
    if (done == total) shown.reset();
  };
  prefill ? bench_prefill(o) : bench_decode(o);
}

void run_step(const Flags& flags, const BenchFlags& f, const BenchTrainOptions& train) {
  BenchStepOptions o{.train = train, .machine_file = f.options.machine_file};
  if (f.what == "step") return bench_step(o);
  if (!flags.given("steps")) o.train.steps = 3;
  if (flags.given("rounds")) o.rounds = f.rounds;
  if (flags.given("ranks")) o.ranks = parse_ranks(f.ranks);
  bench_plan(o);
}

void run_train(const Flags& flags, BenchFlags& f) {
  if (f.config_path.empty())
    throw_error(Code::kInvalidArgument, "bench {}: --config is missing: wanted a run's TOML file",
                f.what);
  const BenchTrainOptions o{
      .config_path = f.config_path,
      .assignments = f.assignments,
      .steps = f.what == "growth" && !flags.given("steps") ? 2 : f.steps,
      .threads = f.threads,
      .ranks = f.what == "plan" ? 1 : one_rank_count(flags, f.what, f.ranks, 1),
      .json = f.options.json};
  if (f.what == "train") return bench_train(o);
  if (f.what == "step" || f.what == "plan") return run_step(flags, f, o);
  f.growth.train = o;
  f.growth.chart = f.serve.chart;
  ProgressLine shown("growth");
  f.growth.progress = [&](int64_t done, int64_t total) {
    shown.update(done, total, "values");
    shown.finish();  // lines of the table come between
  };
  bench_growth(f.growth);
}

// A server that runs, over HTTP.
void run_http_load(const Flags& flags, const BenchFlags& f) {
  for (const char* flag : {"dtype", "head", "tpot-ms", "chart", "threads"})
    if (flags.given(flag))
      throw_error(Code::kInvalidArgument, "--{}: with --url the server has its own; leave it out",
                  flag);
  HttpLoadOptions o{.url = f.url,
                    .api_key_file = f.api_key_file,
                    .model = f.serve.model_path,
                    .prompt_tokens = f.serve.prompt_tokens,
                    .new_tokens = f.serve.new_tokens,
                    .json = f.options.json};
  if (!f.concurrency.empty()) o.concurrency = parse_concurrency(f, kMostRequests);
  bench_http_load(o);
}

void run_serve(const Flags& flags, BenchFlags& f) {
  if (!f.url.empty()) return run_http_load(flags, f);
  if (f.serve.model_path.empty())
    throw_error(Code::kInvalidArgument,
                "bench serve: --model is missing: wanted a model's folder, or --url of a server");
  f.serve.prompt_tokens_asked = flags.given("prompt-tokens");
  f.serve.new_tokens_asked = flags.given("new-tokens");
  f.serve.threads = f.threads;
  f.serve.json = f.options.json;
  if (!f.concurrency.empty()) f.serve.concurrency = parse_concurrency(f, kMostRequests);
  if (!f.tpot.empty())
    f.serve.tpot_ms = parse_numbers(f.tpot, {.flag = "tpot-ms", .least = 0, .most = 1 << 20});
  bench_serve(f.serve);
}

}  // namespace

void cmd_bench(const CommandLine& line) {
  BenchFlags f;
  Flags flags(
      "bench",
      "memory: bandwidth. gemm: peaks, and products at the model's shapes. train: a run's "
      "speed by operation. step: what each operation takes, for the planner; plan: predicted and "
      "measured time of every mesh. growth: what a token costs as sequence, experts, batch or "
      "vocabulary grow. experts: what placing busy experts on further ranks gains. storage: saving "
      "and restoring a checkpoint from many ranks. comm: "
      "messages and collectives between ranks, also under mpirun. rails: messages over several "
      "TCP paths, beside raw streams. prefill, decode: a prompt; a "
      "token of each of many sequences; without an engine. serve: prompts and answers, alone and "
      "together. masks: what structured answers cost for each token. gpu: whether a driver is "
      "here, and what products and attention reach on its device, products beside cuBLASLt or "
      "hipBLASLt if one is there; the GPU kernels have run on an H100; for other devices they are "
      "compiled and emulated.");
  declare(flags, f);
  if (!flags.parse(line)) return;
  if (flags.given("device") && f.what != "gpu")
    throw_error(Code::kInvalidArgument,
                "--device {}: bench {} computes on the CPU; bench gpu alone takes a device; leave "
                "it out",
                f.device, f.what);
  f.options.threads = f.threads > 0 ? static_cast<int>(f.threads) : usable_cores();
  if (f.what == "memory") {
    bench_memory(f.options);
  } else if (f.what == "gemm") {
    bench_gemm(f.options);
  } else if (f.what == "serve") {
    run_serve(flags, f);
  } else if (f.what == "prefill" || f.what == "decode") {
    run_inference(flags, f);
  } else if (f.what == "masks") {
    run_masks(flags, f);
  } else if (f.what == "gpu") {
    bench_gpu({.device = f.device, .json = f.options.json});
  } else if (f.what == "experts") {
    bench_experts({.config_path = f.config_path,
                   .assignments = f.assignments,
                   .zipf = parse_exponents(f.zipf),
                   .ranks = one_rank_count(flags, f.what, f.ranks, 2),
                   .steps = flags.given("steps") ? f.steps : 12,
                   .threads = std::max<int64_t>(1, f.threads),
                   .serve = f.experts_serve,
                   .json = f.options.json});
  } else if (f.what == "comm") {
    bench_comm({.ranks = static_cast<int>(one_rank_count(flags, f.what, f.ranks, 0)),
                .json = f.options.json,
                .machine_file = f.options.machine_file});
  } else if (f.what == "rails") {
    f.rails.rank = static_cast<int>(f.rails_rank);
    f.rails.rounds = f.rounds;
    f.rails.json = f.options.json;
    bench_rails(f.rails);
  } else if (f.what == "storage") {
    bench_storage({.ranks = parse_ranks(f.ranks),
                   .mib = f.mib,
                   .rounds = f.rounds,
                   .out = f.out,
                   .json = f.options.json});
  } else {
    run_train(flags, f);
  }
}

}  // namespace moraine
