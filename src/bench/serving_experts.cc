// BenchServingExperts: two models that take turns on the same routes.
#include "bench/serving_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/pool.h"
#include "base/thread.h"
#include "bench/given_routes.h"
#include "comm/thread_ranks.h"
#include "infer/rank_steps.h"
#include "kernels/peak.h"  // spread_of
#include "model/model.h"

namespace moraine {
namespace {

constexpr int64_t kEvery = 8;           // steps between plans
constexpr int64_t kServingSettle = 32;  // steps before anything is measured: guests arrive
constexpr int64_t kContext = 64;        // positions of a sequence: one page

// Rows of a step.
struct StepKind {
  const char* name;
  int64_t sequences, rows_each;
};
constexpr StepKind kKinds[] = {{"prompt", 8, 64}, {"answers", 16, 1}};
constexpr int64_t kMostRows = 512;

// The routes, and this thread's processor time from each layer's routes to the answers of this rank's experts.
class TimedRoutes : public GivenRoutes {
 public:
  TimedRoutes(int64_t layers, int64_t experts)
      : GivenRoutes(layers, experts, /*rank=*/0),
        rows_(static_cast<size_t>(experts), 0),
        seconds_(static_cast<size_t>(layers), 0) {}

  void route(int64_t layer, const Tensor& expert) override {
    GivenRoutes::route(layer, expert);
    count(expert);
    begin_ = thread_seconds();
  }
  void computed(int64_t layer, double) override {
    seconds_[static_cast<size_t>(layer)] = thread_seconds() - begin_;
  }
  const std::vector<double>& seconds() const { return seconds_; }  // [L] of the last step

  // Work of the busiest of so many ranks over the mean, at least, of layers in which each expert is computed by one.
  double least_over_mean(int64_t ranks) const {
    double sum = 0;
    for (const Layer& l : layers_) {
      const double mean = static_cast<double>(l.work) / static_cast<double>(ranks);
      const int64_t most = std::max(l.most, (l.experts + ranks - 1) / ranks * l.least);
      sum += std::max(1.0, static_cast<double>(most) / mean);
    }
    return layers_.empty() ? 1 : sum / static_cast<double>(layers_.size());
  }

 private:
  struct Layer {  // its experts that have rows, and their work
    int64_t experts, work, most, least;
  };

  void count(const Tensor& expert) {
    std::fill(rows_.begin(), rows_.end(), 0);
    for (int64_t i = 0; i < expert.count(); ++i)
      ++rows_[static_cast<size_t>(expert.as<int32_t>()[i])];
    Layer layer{0, 0, 0, INT64_MAX};
    for (const int64_t rows : rows_) {
      if (rows == 0) continue;
      const int64_t work = work_of_rows(rows);
      ++layer.experts, layer.work += work;
      layer.most = std::max(layer.most, work), layer.least = std::min(layer.least, work);
    }
    layers_.push_back(layer);
  }

  std::vector<int64_t> rows_;  // [E] of a layer
  std::vector<Layer> layers_;  // of all steps
  std::vector<double> seconds_;
  double begin_ = 0;
};

// What all ranks know of a step.
struct ServedStep {
  double seconds = 0;
  double busiest_seconds = 0;  // in experts, of the busiest rank of each layer
  Hash128 hash = {};           // of the hidden rows
};

// One rank's model with its routes.
class ServingRunner {
 public:
  ServingRunner(const BenchServingExpertsOptions& o, PlacementMode mode, Transport& transport,
                int channel)
      : config_(o.model),
        ranks_(transport, channel, /*deadline=*/60),
        placement_{.mode = mode,
                   .slots = o.slots,
                   .every_steps = kEvery,
                   .gate = 0.05,
                   .across_hosts = true},
        gather_(ranks_.experts, config_.experts,
                gather_places(ranks_.experts, placement_, config_.layers, config_.experts)),
        pool_(static_cast<int>(o.threads)),
        routes_(config_.layers, config_.experts) {
    if (gather_.shape().slots > 0)
      guests_ = std::make_unique<ServingGuests>(ranks_.guests, gather_.shape());
    placer_ = std::make_unique<ServingPlacer>(gather_, guests_.get(), placement_);
    const ParameterTable table = held_parameters(config_, nullptr, &gather_);
    const Tensor master =
        arena_.take("weights.master", "weights", DType::kF32, {table.total_count});
    initialize_parameters(table, config_, 1, master);
    ctx_ = make_context(Backend::kCpu, pool_, arena_);
    model_ = std::make_unique<Model>(arena_, config_,
                                     ModelOptions{.compute = o.compute,
                                                  .tokens = kMostRows,
                                                  .positions = kContext,
                                                  .gather = &gather_,
                                                  .serving_guests = guests_.get(),
                                                  .serving_placer = placer_.get()},
                                     master);
    cache_ = make_cache(arena_, config_, o.compute, {.pages = 16, .segments = 16});
    arena_.seal();
    model_->refresh(ctx_);
    model_->observe(&routes_);
  }

  TimedRoutes& routes() { return routes_; }
  ServingLoad load() const { return placer_->load(); }

  ServedStep step(const StepKind& kind) {
    routes_.set_step(count_++);
    Step step;
    for (int64_t s = 0; s < kind.sequences; ++s) {
      const int64_t begin = kind.rows_each > 1 ? 0 : kContext - 1;
      step.segments.push_back({.row_begin = step.rows(),
                               .rows = kind.rows_each,
                               .position_begin = begin,
                               .key_begin = s});
      step.pages.push_back(static_cast<int32_t>(s));
      for (int64_t i = 0; i < kind.rows_each; ++i) {
        step.token.push_back(static_cast<int32_t>((s * 31 + i * 7) % config_.vocab_size));
        step.position.push_back(static_cast<int32_t>(begin + i));
      }
    }
    barrier(ranks_.steps);
    const double begin = now_seconds();
    const Tensor hidden = compute_step(ctx_, *model_, cache_, step);
    barrier(ranks_.steps);
    ServedStep done{.seconds = now_seconds() - begin,
                    .hash = hash_bytes(hidden.data, hidden.bytes())};
    const auto layers = static_cast<size_t>(config_.layers);
    std::vector<double> all(layers * static_cast<size_t>(ranks_.steps.size()), 0);
    std::copy(routes_.seconds().begin(), routes_.seconds().end(),
              all.begin() + static_cast<std::ptrdiff_t>(layers) * ranks_.steps.rank());
    all_reduce_disjoint(ranks_.steps, all);
    for (size_t l = 0; l < layers; ++l) {
      double most = 0;
      for (size_t i = l; i < all.size(); i += layers) most = std::max(most, all[i]);
      done.busiest_seconds += most;
    }
    return done;
  }

 private:
  const ModelConfig config_;
  StepRanks ranks_;
  const ServingPlacement placement_;
  ExpertGather gather_;
  Arena arena_{Arena::Mode::kReal};
  Pool pool_;
  Context ctx_;
  TimedRoutes routes_;
  std::unique_ptr<ServingGuests> guests_;
  std::unique_ptr<ServingPlacer> placer_;
  std::unique_ptr<Model> model_;
  Cache cache_;
  int64_t count_ = 0;
};

struct ServedBalance {
  double zipf = 0;
  const char* kind = "";
  double home_over_mean = 1, placed_over_mean = 1, floor = 1;
  double home_ms = 0, placed_ms = 0, home_processor_ms = 0, placed_processor_ms = 0;
  int64_t guests = 0;
};

double median_ms(const std::vector<ServedStep>& steps, double ServedStep::*field) {
  std::vector<double> values;
  for (const ServedStep& s : steps) values.push_back(1e3 * (s.*field));
  return spread_of(std::move(values)).median;
}

ServedBalance measure(const BenchServingExpertsOptions& o, double s, const StepKind& kind,
                      Transport& transport) {
  ServingRunner home(o, PlacementMode::kStatic, transport, 0),
      placed(o, PlacementMode::kBalanced, transport, StepRanks::kChannels);
  const std::vector<double> weights = zipf_weights(o.model.experts, s);
  home.routes().set_weights(weights);
  placed.routes().set_weights(weights);
  std::vector<ServedStep> at_home, balanced;
  for (int64_t i = 0; i < kServingSettle + o.steps; ++i) {
    const ServedStep a = home.step(kind), b = placed.step(kind);
    if (!(a.hash == b.hash))
      throw_error(Code::kDiverged, "bench experts --serve: step {} has other bits when placed", i);
    if (i < kServingSettle) continue;
    at_home.push_back(a), balanced.push_back(b);
  }
  ServedBalance result{.zipf = s, .kind = kind.name};
  result.home_over_mean = placed.load().home_load_over_mean;
  result.placed_over_mean = placed.load().rank_load_over_mean;
  result.floor = home.routes().least_over_mean(o.ranks);
  result.home_ms = median_ms(at_home, &ServedStep::seconds);
  result.placed_ms = median_ms(balanced, &ServedStep::seconds);
  result.home_processor_ms = median_ms(at_home, &ServedStep::busiest_seconds);
  result.placed_processor_ms = median_ms(balanced, &ServedStep::busiest_seconds);
  result.guests = placed.load().guests;
  return result;
}

void print(const ServedBalance& b, bool json) {
  if (!json) {
    fmt::print(
        "{:4.1f}  {:<8}            {:5.2f}   {:5.2f} | {:5.2f} |                   {:7.2f} {:7.2f} "
        "|         {:7.2f} {:7.2f} | {:6}\n",
        b.zipf, b.kind, b.home_over_mean, b.placed_over_mean, b.floor, b.home_processor_ms,
        b.placed_processor_ms, b.home_ms, b.placed_ms, b.guests);
    return;
  }
  fmt::print("{}\n", json_text(Json{{"bench", "experts.serve"},
                                    {"zipf", b.zipf},
                                    {"step", b.kind},
                                    {"home_over_mean", b.home_over_mean},
                                    {"placed_over_mean", b.placed_over_mean},
                                    {"floor_without_replicas", b.floor},
                                    {"home_processor_ms", b.home_processor_ms},
                                    {"placed_processor_ms", b.placed_processor_ms},
                                    {"home_step_ms", b.home_ms},
                                    {"placed_step_ms", b.placed_ms},
                                    {"guests", b.guests}}));
}

}  // namespace

void bench_serving_experts(const BenchServingExpertsOptions& o) {
  if (!o.json)
    fmt::print(
        "{} ranks x {} threads on {} cores; the same bits in every step\n\n"
        "zipf  step     busiest/mean: home  placed | floor | processor ms in experts: home  placed "
        "| step ms: home  placed | guests\n",
        o.ranks, o.threads, std::thread::hardware_concurrency());
  for (const double s : o.zipf) {
    for (const StepKind& kind : kKinds) {
      ServedBalance result;
      run_thread_ranks(static_cast<int>(o.ranks), [&](Transport& transport) {
        const ServedBalance mine = measure(o, s, kind, transport);
        if (transport.rank() == 0) result = mine;
      });
      print(result, o.json);
    }
  }
}

}  // namespace moraine
