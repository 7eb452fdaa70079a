// BenchServe: an engine fed with random requests, and the times at which its listeners are called.
#include "bench/serve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/chart_page.h"
#include "base/check_place.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/quantile.h"
#include "base/random.h"
#include "base/resident.h"
#include "infer/engine.h"
#include "infer/step_rows.h"
#include "kernels/profile.h"
#include "machine/machine.h"
#include "model/loaded_model.h"

namespace moraine {
namespace {

// What a load of requests came to.
struct Served {
  std::string name;
  int64_t concurrency = 1, tpot_ms = 0;
  int64_t prompt_tokens = 0, answer_tokens = 0;  // computed, cached ones not counted
  double seconds = 0;
  std::vector<double> first_ms = {};    // time to first token
  std::vector<double> between_ms = {};  // between tokens of an answer
  double beside_percent = 0;            // of the steps: scheduler, sampling, listeners
  double limit_percent = 0;
  const char* limit = "";
};

struct LoadShape {
  std::string name;
  int64_t concurrency, requests, prompt_tokens, new_tokens, tpot_ms;
};

class Bench {
 public:
  Bench(LoadedModel& model, const Machine& machine) : model_(model), machine_(machine) {}

  Served run(const LoadShape& o);
  std::pair<double, double> prefix_hit(int64_t prompt_tokens);

 private:
  Request request(int64_t prompt_tokens, int64_t new_tokens);
  void submit(Engine& engine, const LoadShape& o, Served& load);
  void share_of_limit(const Profile& profile, Served& load) const;

  LoadedModel& model_;
  const Machine& machine_;
  uint64_t next_ = 0;  // of requests: no two have the same prompt
  int64_t to_submit_ = 0;
  int64_t in_flight_ = 0;
};

Request Bench::request(int64_t prompt_tokens, int64_t new_tokens) {
  Request r;
  r.logprobs = false;  // as most clients ask
  const auto V = static_cast<uint64_t>(model_.config().vocab_size);
  for (int64_t i = 0; i < prompt_tokens; ++i)
    r.prompt.push_back(
        static_cast<int32_t>(random_below(V, 1, Stream::kTest, next_, static_cast<uint64_t>(i))));
  r.max_tokens = new_tokens;
  r.sampling.seed = next_++;
  return r;
}

void Bench::submit(Engine& engine, const LoadShape& o, Served& load) {
  --to_submit_;
  ++in_flight_;
  const double begin = now_seconds();
  auto last = std::make_shared<double>(0);
  Listener listener;
  listener.on_token = [&load, begin, last](const TokenPiece&) {
    const double now = now_seconds();
    if (*last == 0) {
      load.first_ms.push_back(1e3 * (now - begin));
    } else {
      load.between_ms.push_back(1e3 * (now - *last));
    }
    *last = now;
  };
  listener.on_finish = [this, &load, o](const Ended&) {
    --in_flight_;
    load.prompt_tokens += o.prompt_tokens;
    load.answer_tokens += o.new_tokens;
  };
  engine.submit(request(o.prompt_tokens, o.new_tokens), std::move(listener));
}

Served Bench::run(const LoadShape& o) {
  Engine engine(model_.ctx(), model_.model(), model_.cache(), nullptr,
                {.sequences = o.concurrency,
                 .interleave_rows = kInterleaveRows,
                 .tpot_seconds = static_cast<double>(o.tpot_ms) * 1e-3});
  Served load{.name = o.name, .concurrency = o.concurrency, .tpot_ms = o.tpot_ms};
  Served warm;
  to_submit_ = 1;
  submit(engine,
         {.name = "",
          .concurrency = 1,
          .requests = 1,
          .prompt_tokens = std::min<int64_t>(8, o.prompt_tokens),
          .new_tokens = std::min<int64_t>(8, o.new_tokens),
          .tpot_ms = 0},
         warm);
  while (engine.step()) continue;
  const EngineStats before = engine.stats();
  Profile profile;
  model_.ctx().profile = &profile;
  to_submit_ = o.requests;
  const double begin = now_seconds();
  while (to_submit_ > 0 || in_flight_ > 0) {
    while (to_submit_ > 0 && in_flight_ < o.concurrency) submit(engine, o, load);
    engine.step();
  }
  load.seconds = now_seconds() - begin;
  model_.ctx().profile = nullptr;
  const EngineStats stats = engine.stats();
  const double steps = stats.step_seconds - before.step_seconds,
               model = stats.model_seconds - before.model_seconds;
  load.beside_percent = 100 * (steps - model) / steps;
  share_of_limit(profile, load);
  return load;
}

void Bench::share_of_limit(const Profile& profile, Served& load) const {
  double flops = 0, bytes = 0;
  for (const Profile::Row& row : profile.rows()) flops += row.flops, bytes += row.bytes;
  const bool bf16 = model_.model().options().compute == DType::kBF16;
  const double arithmetic = 100 * flops / load.seconds / 1e9 / matmul_gflops(machine_, bf16),
               memory = 100 * bytes / load.seconds / 1e9 / machine_.read_gb_s;
  load.limit_percent = std::max(arithmetic, memory);
  load.limit = arithmetic > memory ? "arithmetic" : "memory";
}

// Milliseconds to the first token of a prompt that is new, and of the same again: medians of five.
std::pair<double, double> Bench::prefix_hit(int64_t prompt_tokens) {
  Engine engine(model_.ctx(), model_.model(), model_.cache(), nullptr, {});
  std::vector<double> cold, warm;
  for (int round = 0; round < 5; ++round) {
    const Request r = request(prompt_tokens, 1);
    for (std::vector<double>* times : {&cold, &warm}) {
      const double begin = now_seconds();
      engine.submit(r, {});
      while (engine.step()) continue;
      times->push_back(1e3 * (now_seconds() - begin));
    }
  }
  return {quantile_of(cold, 0.5), quantile_of(warm, 0.5)};
}

void print_head() {
  fmt::print("{:<10} {:>5} {:>7} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n", "load", "conc",
             "target", "prefill/s", "tokens/s", "first", "p50", "p95", "p99", "beside", "limit");
}

void print(const Served& l, bool json) {
  const double first = quantile_of(l.first_ms, 0.5), p50 = quantile_of(l.between_ms, 0.5),
               p95 = quantile_of(l.between_ms, 0.95), p99 = quantile_of(l.between_ms, 0.99),
               prefill = static_cast<double>(l.prompt_tokens) / l.seconds,
               tokens = static_cast<double>(l.answer_tokens) / l.seconds;
  if (json) {
    const Json line = {{"bench", "serve"},
                       {"name", l.name},
                       {"concurrency", l.concurrency},
                       {"tpot_target_ms", l.tpot_ms},
                       {"prompt_tokens_per_s", prefill},
                       {"tokens_per_s", tokens},
                       {"first_token_ms_median", first},
                       {"between_ms_p50", p50},
                       {"between_ms_p95", p95},
                       {"between_ms_p99", p99},
                       {"beside_percent", l.beside_percent},
                       {"percent_of_limit", l.limit_percent},
                       {"limit", l.limit}};
    fmt::print("{}\n", json_text(line));
    return;
  }
  fmt::print(
      "{:<10} {:>5} {:>7} {:>9.0f} {:>9.1f} {:>6.1f}ms {:>6.2f}ms {:>6.2f}ms {:>6.2f}ms "
      "{:>7.1f}% {:>7.1f}% {}\n",
      l.name, l.concurrency, l.tpot_ms > 0 ? fmt::format("{} ms", l.tpot_ms) : "-", prefill, tokens,
      first, p50, p95, p99, l.beside_percent, l.limit_percent, l.limit);
}

// Percentiles and throughput over the targets, on one page.
void write_chart(const std::string& path, std::vector<Served> loads) {
  double largest = 0;
  for (const Served& l : loads) largest = std::max(largest, static_cast<double>(l.tpot_ms));
  const auto at = [&](const Served& l) {  // no target stands at the far end
    return l.tpot_ms > 0 ? static_cast<double>(l.tpot_ms) : 1.5 * largest;
  };
  std::sort(loads.begin(), loads.end(),
            [&](const Served& a, const Served& b) { return at(a) < at(b); });
  const auto series = [&](const char* name, int colour, const auto& value) {
    ChartSeries s{.name = name, .colour = colour, .dots = true};
    for (const Served& l : loads) {
      s.x.push_back(at(l));
      s.y.push_back(value(l));
    }
    return s;
  };
  const auto between = [&](double p) {
    return [p](const Served& l) { return quantile_of(l.between_ms, p); };
  };
  const LineChart latency{
      .title = "Time between tokens by latency target",
      .unit = "ms",
      .series = {series("p50", 1, between(0.5)), series("p95", 2, between(0.95)),
                 series("target", 3, [&](const Served& l) { return l.tpot_ms > 0 ? at(l) : NAN; })},
      .from_zero = true};
  const LineChart rate{.title = "Throughput by latency target",
                       .unit = "tokens/s",
                       .series = {series("answers", 1,
                                         [](const Served& l) {
                                           return static_cast<double>(l.answer_tokens) / l.seconds;
                                         })},
                       .from_zero = true};
  posix_file_system().write_atomic(
      path, chart_page({.title = "Latency targets",
                        .subtitle = fmt::format("{} requests at a time. Below: the target in ms; "
                                                "the rightmost point has none.",
                                                loads.front().concurrency),
                        .body = chart_cards({latency, rate})}));
}

void print_prefix(const std::pair<double, double>& ms, int64_t tokens, bool json) {
  const auto [cold, warm] = ms;
  if (json) {
    fmt::print("{}\n", json_text({{"bench", "serve"},
                                  {"name", "prefix"},
                                  {"prompt_tokens", tokens},
                                  {"first_token_ms_new", cold},
                                  {"first_token_ms_cached", warm}}));
    return;
  }
  fmt::print(
      "prefix of {} tokens: first token after {:.1f} ms when new, {:.2f} ms when cached: {:.0f} "
      "times\n",
      tokens, cold, warm, cold / warm);
}

void print_limits(const Machine& before, const Machine& after, bool bf16, bool json) {
  const double flops[] = {matmul_gflops(before, bf16), matmul_gflops(after, bf16)};
  if (json) {
    fmt::print("{}\n", json_text({{"bench", "serve"},
                                  {"name", "limits"},
                                  {"peak_gflop_per_s", flops[0]},
                                  {"peak_gflop_per_s_after", flops[1]},
                                  {"read_gb_s", before.read_gb_s},
                                  {"read_gb_s_after", after.read_gb_s}}));
    return;
  }
  fmt::print(
      "limits before and after: {:.0f} and {:.0f} GFLOP/s, {:.1f} and {:.1f} GB/s; peak resident "
      "{:.0f} MiB\n",
      flops[0], flops[1], before.read_gb_s, after.read_gb_s,
      static_cast<double>(peak_resident_bytes()) / (1 << 20));
}

void check(const BenchServeOptions& o) {
  if (!o.chart.empty() && o.tpot_ms.empty())
    throw_error(Code::kInvalidArgument,
                "bench serve --chart {}: it draws latency targets, and none is given; wanted "
                "--tpot-ms too, as 15,30,60,0",
                o.chart);
  if (!o.chart.empty()) check_file_place(posix_file_system(), "bench serve --chart", o.chart);
}

struct RequestTokens {
  int64_t prompt, answer;
};
RequestTokens tokens_of(const BenchServeOptions& o, const ModelDirectory& directory) {
  const int64_t context = directory.config().max_positions;
  if (context < 3)
    throw_error(Code::kInvalidArgument,
                "bench serve: the model {} was made for {} positions (max_positions); wanted at "
                "least 3, of "
                "a prompt and two tokens",
                o.model_path, context);
  const int64_t least_answer =
      o.new_tokens_asked ? o.new_tokens : 2;  // there is a time between two
  RequestTokens tokens = {.prompt = o.prompt_tokens, .answer = o.new_tokens};
  if (!o.prompt_tokens_asked)
    tokens.prompt =
        std::min({tokens.prompt, context / 2, std::max<int64_t>(1, context - least_answer)});
  if (!o.new_tokens_asked) tokens.answer = std::min(tokens.answer, context - tokens.prompt);
  const bool asked = o.prompt_tokens_asked || o.new_tokens_asked;
  if (!asked || tokens.prompt + std::max(tokens.answer, least_answer) <= context) return tokens;
  throw_error(
      Code::kInvalidArgument,
      "bench serve: --prompt-tokens {} and --new-tokens {} are {} positions, the model {} was "
      "made for {} (max_positions); lower one of them",
      tokens.prompt, least_answer, tokens.prompt + least_answer, o.model_path, context);
}

}  // namespace

void bench_serve(const BenchServeOptions& o) {
  check(o);
  const int64_t most = *std::max_element(o.concurrency.begin(), o.concurrency.end());
  const ModelDirectory directory = ModelDirectory::open(posix_file_system(), o.model_path);
  const auto [prompt, answer] = tokens_of(o, directory);
  const int64_t cached = std::min<int64_t>(4096, directory.config().max_positions - 1);
  const auto pages = [](int64_t positions) { return positions / kPageRows + 2; };
  LoadOptions load;
  load.dtype = o.dtype;
  load.threads = o.threads;
  load.head = o.head;
  load.tokens = std::max(kStepRows, most);
  load.positions = std::max(prompt + answer, cached + 1);
  load.cache = {.pages = std::max(most * pages(prompt + answer), pages(cached) + 2),
                .segments = most};
  const std::unique_ptr<LoadedModel> model = LoadedModel::open(directory, load);
  Pool pool(o.threads > 0 ? static_cast<int>(o.threads) : usable_cores());
  const bool bf16 = model->model().options().compute == DType::kBF16;
  Machine machine = measure_machine_quick(pool);
  Bench bench(*model, machine);

  if (!o.json) {
    fmt::print("{}: {} prompt tokens, {} new ones; {}, {} threads\n", directory.path(), prompt,
               answer, bf16 ? "bf16" : "f32", pool.threads());
    print_head();
  }
  print(bench.run({.name = "prefill",
                   .concurrency = 1,
                   .requests = 8,
                   .prompt_tokens = prompt,
                   .new_tokens = 1,
                   .tpot_ms = 0}),
        o.json);
  for (const int64_t n : o.concurrency)
    print(bench.run({.name = "mixed",
                     .concurrency = n,
                     .requests = std::max<int64_t>(4, 2 * n),
                     .prompt_tokens = prompt,
                     .new_tokens = answer,
                     .tpot_ms = 0}),
          o.json);
  std::vector<Served> loads;
  for (const int64_t target : o.tpot_ms) {
    loads.push_back(bench.run({.name = "target",
                               .concurrency = most,
                               .requests = 2 * most,
                               .prompt_tokens = prompt,
                               .new_tokens = answer,
                               .tpot_ms = target}));
    print(loads.back(), o.json);
  }
  if (!o.chart.empty()) write_chart(o.chart, loads);
  print_prefix(bench.prefix_hit(cached), cached, o.json);
  print_limits(machine, measure_machine_quick(pool), bf16, o.json);
}

}  // namespace moraine
