// BenchExperts: two trainers that take turns on the same routes, then two events.
#include "bench/experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/json.h"
#include "base/named_file.h"
#include "base/pool.h"
#include "base/thread.h"
#include "bench/given_routes.h"
#include "bench/random_batch.h"
#include "bench/serving_experts.h"
#include "comm/thread_ranks.h"
#include "kernels/peak.h"  // spread_of
#include "parallel/replicate_and_pack.h"
#include "train/trainer.h"

namespace moraine {
namespace {

constexpr double kLevel = 1.1;  // busiest over mean that counts as balanced
constexpr int64_t kTurnSteps =
    4;  // timed at a time; one more before, which has the other's traffic beside it
constexpr int64_t kSettle = 6;     // steps before anything is measured, or happens
constexpr int64_t kPatience = 20;  // steps after which nothing more is expected

// Most of a step is in its experts: one after a short sequence, and an optimizer that costs little.
const char* const kModel =
    "[model]\nhidden = 256\nlayers = 2\nheads = 2\nkv_heads = 1\nhead_dim = 64\nexperts = 16\n"
    "expert_hidden = 512\nrouter_hidden = 32\nvocab_size = 256\nskip = \"none\"\n"
    "[train]\nsequence = 64\nbatch_tokens = 8192\nsteps = 1\n"
    "[optimizer]\nmatrices = \"adamw\"\n"
    "[data]\ntrain = \"none\"\n"
    "[parallel]\nplacement_every_steps = 1\n";

// What all ranks know of a step.
struct Seen {
  double seconds = 0, loss = 0;
  double over_mean = 1, home_over_mean = 1;      // rows
  double busiest_seconds = 0, mean_seconds = 0;  // in experts
  double processor_seconds = 0;                  // of the whole step, the most of a rank
  std::optional<PlacementChange> placed = {};

  double seconds_over_mean() const { return mean_seconds > 0 ? busiest_seconds / mean_seconds : 1; }
};

// One rank's trainer with its routes.
class Runner {
 public:
  Runner(const RunConfig& config, int threads, Transport& transport)
      : config_(config),
        timeline_(config),
        ranks_(transport,
               make_mesh(transport.size(), transport.rank(), config.parallel.expert,
                         phase_context(config, 0), config.train.slots, config.model.experts),
               config.parallel.deadline_seconds),
        pool_(threads),
        trainer_(arena_, pool_, config_, timeline_, ranks_,
                 trainer_options(config, timeline_, Machine())),
        routes_(config.model.layers, config.model.experts, transport.rank()) {
    arena_.seal();
    trainer_.initialize(1);
    trainer_.refresh();
    trainer_.model().observe(&routes_);
  }

  GivenRoutes& routes() { return routes_; }
  Trainer& trainer() { return trainer_; }

  Seen step() {
    const StepPlan plan = timeline_.at(timeline_.steps() - 1);
    routes_.set_step(count_);
    const auto read = [&](int64_t first, int64_t count, SequenceBatch* out) {
      read_random(plan, config_.model.vocab_size, first, count, out);
    };
    StepPlan now = plan;
    now.step = count_++;
    barrier(ranks_.world);
    const double begin = now_seconds(), processor = thread_seconds();
    const StepResult result = trainer_.step(now, /*lr_scale=*/1e-3, read, spike_);
    const double used = thread_seconds() - processor;
    barrier(ranks_.world);
    Seen seen{.seconds = now_seconds() - begin,
              .loss = result.loss,
              .over_mean = result.rank_load_over_mean,
              .home_over_mean = result.home_load_over_mean,
              .placed = result.placed};
    const std::vector<double> seconds = of_all(result.expert_seconds), cores = of_all(used);
    seen.processor_seconds = *std::max_element(cores.begin(), cores.end());
    seen.busiest_seconds = *std::max_element(seconds.begin(), seconds.end());
    seen.mean_seconds =
        std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
    return seen;
  }

 private:
  std::vector<double> of_all(double mine) {
    std::vector<double> values(static_cast<size_t>(ranks_.mesh.ranks), 0.0);
    values[static_cast<size_t>(ranks_.mesh.rank)] = mine;
    all_reduce_disjoint(ranks_.world, values);
    return values;
  }

  RunConfig config_;
  Timeline timeline_;
  Arena arena_{Arena::Mode::kReal};
  Ranks ranks_;
  Pool pool_;
  Trainer trainer_;
  GivenRoutes routes_;
  SpikeDetector spike_{/*sigma=*/0};
  int64_t count_ = 0;
};

double median_of(const std::vector<Seen>& steps, double Seen::*field) {
  std::vector<double> values;
  for (const Seen& s : steps) values.push_back(s.*field);
  return spread_of(std::move(values)).median;
}

struct Balance {
  double zipf = 0;
  std::vector<Seen> home = {}, placed = {};
  double floor = 1, anywhere = 1;  // without replication; EPLB in as many places
  int64_t guests = 0, bytes = 0;   // in force at the end; each step
};

// What is least without replicas; EPLB's busiest over mean, a mean over layers.
void add_bounds(const RunConfig& config, const GivenRoutes& routes, Balance& b) {
  const int64_t M = config.parallel.expert, E = config.model.experts, L = config.model.layers;
  b.floor = routes.floor_over_mean(M);
  b.anywhere = 0;
  for (int64_t l = 0; l < L; ++l) {
    const std::vector<double> devices = replicate_and_pack(
        routes.shares(l), {.replicas = E + M * config.parallel.expert_slots, .devices = M});
    b.anywhere += *std::max_element(devices.begin(), devices.end()) * static_cast<double>(M) /
                  static_cast<double>(L);
  }
}

void take_turns(Runner& home, Runner& placed, int64_t steps, Balance& b) {
  const auto both = [&](bool timed) {
    const Seen a = home.step();
    if (timed) b.home.push_back(a);
    return a.loss;
  };
  std::vector<double> losses;
  for (int64_t i = 0; i < kSettle; ++i) losses.push_back(both(false));
  for (int64_t i = 0; i < kSettle; ++i) {
    const Seen s = placed.step();
    if (s.placed) b.guests = s.placed->guests, b.bytes = s.placed->bytes;
    if (s.loss != losses[static_cast<size_t>(i)])
      throw_error(Code::kDiverged, "bench experts: step {} has loss {} at home, {} placed", i,
                  losses[static_cast<size_t>(i)], s.loss);
  }
  while (static_cast<int64_t>(b.placed.size()) < steps) {
    losses.clear();
    for (int64_t i = 0; i <= kTurnSteps; ++i) losses.push_back(both(i > 0));
    for (int64_t i = 0; i <= kTurnSteps; ++i) {
      const Seen s = placed.step();
      if (s.placed) b.guests = s.placed->guests, b.bytes = s.placed->bytes;
      if (i > 0) b.placed.push_back(s);
      if (s.loss != losses[static_cast<size_t>(i)])
        throw_error(Code::kDiverged, "bench experts: loss {} at home, {} placed",
                    losses[static_cast<size_t>(i)], s.loss);
    }
  }
}

// After something happened: how it was before, at once, at last, and how many steps it took.
struct Reaction {
  double before = 1, at_once = 1, at_last = 1;
  int64_t steps = -1;  // -1: not within kPatience
};

template <class Measure, class Event>
Reaction react(Runner& runner, const Measure& measure, const Event& event) {
  Reaction r;
  for (int64_t i = 0; i < kSettle; ++i) r.before = measure(runner.step());
  event();
  std::vector<double> after;
  for (int64_t i = 0; i < kPatience; ++i) after.push_back(measure(runner.step()));
  r.at_once = after.front();
  r.at_last = spread_of({after.end() - 8, after.end()}).median;
  const auto level = std::find_if(after.begin(), after.end(), [](double x) { return x <= kLevel; });
  if (level != after.end()) r.steps = level - after.begin();
  return r;
}

struct Result {
  std::vector<Balance> balance = {};
  Reaction hot, slow;
};

Result measure(const RunConfig& config, const BenchExpertsOptions& o, Transport& transport) {
  RunConfig at_home = config, balanced = config;
  at_home.parallel.placement = PlacementMode::kStatic;
  balanced.parallel.placement = PlacementMode::kBalanced;
  const int threads = static_cast<int>(o.threads);
  Result result;
  for (const double s : o.zipf) {
    Runner home(at_home, threads, transport), placed(balanced, threads, transport);
    const std::vector<double> weights = zipf_weights(config.model.experts, s);
    home.routes().set_weights(weights);
    placed.routes().set_weights(weights);
    Balance b{.zipf = s};
    add_bounds(balanced, home.routes(), b);
    take_turns(home, placed, o.steps, b);
    result.balance.push_back(std::move(b));
  }
  {
    Runner runner(balanced, threads, transport);
    std::vector<double> hot(static_cast<size_t>(config.model.experts), 1);
    hot[0] = static_cast<double>(config.model.experts - 1);  // half of all
    result.hot = react(
        runner, [](const Seen& s) { return s.over_mean; },
        [&] { runner.routes().set_ordered_weights(hot); });
  }
  Runner runner(balanced, threads, transport);
  result.slow = react(
      runner, [](const Seen& s) { return s.seconds_over_mean(); },
      [&] {
        if (transport.rank() == 1) runner.routes().set_slowness(2);
      });
  return result;
}

void print_tables(const Result& r, const BenchExpertsOptions& o) {
  fmt::print(
      "{} ranks x {} threads on {} cores; the same loss in every step\n\n"
      "zipf  busiest/mean: home  placed | floor  anywhere | step ms: home  placed | most "
      "processor ms: home  placed | guests  MiB/step\n",
      o.ranks, o.threads, std::thread::hardware_concurrency());
  for (const Balance& b : r.balance) {
    fmt::print(
        "{:4.1f}                {:5.2f}   {:5.2f} | {:5.2f}     {:5.2f} |         {:6.1f}  {:6.1f} "
        "|             {:11.1f}  {:6.1f} | {:6}    {:6.1f}\n",
        b.zipf, median_of(b.home, &Seen::over_mean), median_of(b.placed, &Seen::over_mean), b.floor,
        b.anywhere, 1e3 * median_of(b.home, &Seen::seconds),
        1e3 * median_of(b.placed, &Seen::seconds),
        1e3 * median_of(b.home, &Seen::processor_seconds),
        1e3 * median_of(b.placed, &Seen::processor_seconds), b.guests,
        static_cast<double>(b.bytes) / (1 << 20));
  }
  const auto tell = [](const char* what, const Reaction& x) {
    fmt::print("{}: {:.2f} before, {:.2f} at once, {:.2f} at last; ", what, x.before, x.at_once,
               x.at_last);
    x.steps < 0 ? fmt::print("never at {} or less in {} steps\n", kLevel, kPatience)
                : fmt::print("{} or less after {} steps\n", kLevel, x.steps);
  };
  fmt::print("\n");
  tell("half of all rows to one expert, busiest/mean rows", r.hot);
  tell("rank 1 takes twice as long, busiest/mean seconds in experts", r.slow);
}

void print_json(const Result& r, const BenchExpertsOptions& o) {
  for (const Balance& b : r.balance) {
    fmt::print(
        "{}\n",
        json_text(Json{{"bench", "experts"},
                       {"ranks", o.ranks},
                       {"zipf", b.zipf},
                       {"home_over_mean", median_of(b.home, &Seen::over_mean)},
                       {"placed_over_mean", median_of(b.placed, &Seen::over_mean)},
                       {"floor_without_replicas", b.floor},
                       {"replicas_anywhere", b.anywhere},
                       {"home_step_ms", 1e3 * median_of(b.home, &Seen::seconds)},
                       {"placed_step_ms", 1e3 * median_of(b.placed, &Seen::seconds)},
                       {"home_processor_ms", 1e3 * median_of(b.home, &Seen::processor_seconds)},
                       {"placed_processor_ms", 1e3 * median_of(b.placed, &Seen::processor_seconds)},
                       {"home_busiest_ms", 1e3 * median_of(b.home, &Seen::busiest_seconds)},
                       {"placed_busiest_ms", 1e3 * median_of(b.placed, &Seen::busiest_seconds)},
                       {"guests", b.guests},
                       {"bytes_per_step", b.bytes}}));
  }
  for (const auto& [what, x] : {std::pair{"hot", r.hot}, std::pair{"slow", r.slow}}) {
    fmt::print("{}\n", json_text(Json{{"bench", "experts.reaction"},
                                      {"to", what},
                                      {"before", x.before},
                                      {"at_once", x.at_once},
                                      {"at_last", x.at_last},
                                      {"steps", x.steps}}));
  }
}

RunConfig read_config(const BenchExpertsOptions& o) {
  const bool given = !o.config_path.empty();
  SettingsTable settings = SettingsTable::parse(
      given ? read_named_file(posix_file_system(), "bench --config", o.config_path) : kModel,
      given ? o.config_path : "the model of bench experts");
  if (!given) settings.set(fmt::format("train.slots={}", o.ranks));  // one for each rank
  for (const std::string& assignment : o.assignments) settings.set(assignment);
  RunConfig config = read_run_config(settings);
  if (config.model.vocab_size == 0) config.model.vocab_size = 512;
  config.parallel.expert = o.ranks;
  if (o.ranks < 2 || config.model.experts % o.ranks != 0)
    throw_error(Code::kInvalidArgument,
                "--ranks {}: bench experts divides {} experts; wanted 2 or more ranks that divide "
                "them",
                o.ranks, config.model.experts);
  return config;
}

}  // namespace

void bench_experts(const BenchExpertsOptions& o) {
  const RunConfig config = read_config(o);
  if (o.serve)
    return bench_serving_experts({.model = config.model,
                                  .compute = compute_dtype(config),
                                  .zipf = o.zipf,
                                  .ranks = o.ranks,
                                  .slots = config.parallel.expert_slots,
                                  .steps = o.steps,
                                  .threads = o.threads,
                                  .json = o.json});
  Result result;
  run_thread_ranks(static_cast<int>(o.ranks), [&](Transport& transport) {
    Result mine = measure(config, o, transport);
    if (transport.rank() == 0) result = std::move(mine);
  });
  o.json ? print_json(result, o) : print_tables(result, o);
}

}  // namespace moraine
