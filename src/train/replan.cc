// Replan: predicted times scaled by a measured one, and a gate.
#include "train/replan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/error.h"
#include "base/log.h"
#include "base/quantile.h"
#include "base/random.h"
#include "base/resident.h"
#include "comm/agree.h"
#include "train/run.h"
#include "train/run_kept.h"

namespace moraine {
namespace {

constexpr double kEarnings = 8;  // moves that a move must be worth
// Of a move that is the first: the run is opened again, and its memory copied out and in.
constexpr double kOpenSeconds = 0.2, kMoveBytesPerSecond = 5e8;

int64_t steps_left(const Run& run, const StepPlan& step) {
  int64_t end = run.timeline.steps();
  for (const StepPlan& kind : run.timeline.kinds()) {
    if (kind.step > step.step) end = std::min(end, kind.step);
  }
  return end - step.step - 1;
}

bool has_own_layout(const RunConfig& c, int64_t phase) {
  const PhaseConfig& p = c.phases[static_cast<size_t>(phase)];
  return p.expert > 0 || p.recompute != PhaseRecompute::kAsTrain;
}

// What another plan of this run's ranks may take on this host: what is free, and what this plan has.
int64_t memory_of_host(const Run& run, const Place& place) {
  const int64_t here = std::min<int64_t>(place.ranks_per_host, run.ranks.mesh.ranks);
  return available_memory_bytes() + here * run.arena.bytes();
}

// What the last move took, or what one with so much memory may take.
double move_seconds(const Run& run, const PlanHistory& history) {
  if (history.move_seconds > 0) return history.move_seconds;
  return kOpenSeconds + static_cast<double>(run.arena.bytes()) / kMoveBytesPerSecond;
}

}  // namespace

std::optional<BetterPlan> better_plan(const ReplanCase& c) {
  const auto now = std::find_if(c.options.begin(), c.options.end(),
                                [&](const ReplanCase::Option& o) { return o.choice == c.now; });
  if (now == c.options.end() || now->predicted <= 0) return {};
  const double scale = c.seconds / now->predicted;
  std::optional<BetterPlan> best;
  for (const ReplanCase::Option& o : c.options) {
    if (!o.fits || o.choice == c.now) continue;
    const auto measured = std::find_if(c.tried.begin(), c.tried.end(),
                                       [&](const TriedPlan& t) { return t.choice == o.choice; });
    const double seconds = measured != c.tried.end() ? measured->seconds : scale * o.predicted;
    if (!best || seconds < best->seconds) best = BetterPlan{o.choice, seconds};
  }
  if (!best) return {};
  const double saved = c.seconds - best->seconds;
  const double earned = saved * static_cast<double>(c.steps_left);
  const bool repays = c.gate == 0 || earned > kEarnings * c.move_seconds;
  return saved > c.gate * c.seconds && repays ? best : std::nullopt;
}

double rows_over_mean(std::span<const double> rows, int64_t classes, int64_t experts,
                      int64_t ranks) {
  double sum = 0;
  int64_t layers = 0;
  for (size_t at = 0; at + static_cast<size_t>(classes) <= rows.size();
       at += static_cast<size_t>(classes)) {
    const std::span<const double> layer = rows.subspan(at, static_cast<size_t>(experts));
    const double all = std::accumulate(layer.begin(), layer.end(), 0.0);
    if (all == 0) continue;
    double most = 0;
    const size_t each = static_cast<size_t>(experts / ranks);
    for (size_t r = 0; r < static_cast<size_t>(ranks); ++r) {
      const std::span<const double> mine = layer.subspan(r * each, each);
      most = std::max(most, std::accumulate(mine.begin(), mine.end(), 0.0));
    }
    sum += most * static_cast<double>(ranks) / all;
    ++layers;
  }
  return layers > 0 ? sum / static_cast<double>(layers) : 1;
}

void RowsOverMean::add(std::span<const double> rows, int64_t classes, int64_t experts,
                       int64_t ranks) {
  ++steps_;
  size_t at = 0;
  for (int64_t n = 1; n <= ranks && experts % n == 0; n *= 2) {
    if (at == sums_.size()) sums_.push_back(0);
    sums_[at++] += rows_over_mean(rows, classes, experts, n);
  }
}

double RowsOverMean::on(int64_t ranks) const {
  const auto at = static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(ranks)));
  return at < sums_.size() ? sums_[at] / static_cast<double>(steps_) : 1;
}

// On rank 0.
std::optional<BetterPlan> Replan::decide(Run& run, const StepPlan& step, double seconds) {
  const RunConfig& c = run.config;
  PlanHistory& history = run.options.kept->plans;
  const MeshChoice now = {phase_expert(c, step.phase), phase_recompute(c, step.phase)};
  const auto is_this = [&](const TriedPlan& t) {
    return t.choice == now && t.phase == step.phase && t.batch_tokens == step.batch_tokens;
  };
  std::erase_if(history.tried, is_this);
  history.tried.push_back({now, step.phase, step.batch_tokens, seconds});
  std::vector<TriedPlan> of_this_kind;
  for (const TriedPlan& t : history.tried) {
    if (t.phase == step.phase && t.batch_tokens == step.batch_tokens) of_this_kind.push_back(t);
  }

  const bool is_level = c.parallel.placement == PlacementMode::kBalanced;
  const MeshSearch search{
      .context = false,
      .memory_bytes = memory_of_host(run, history.place),
      .imbalance = [&](int64_t ranks) { return is_level ? 1 : over_mean_.on(ranks); },
      .step = step.step};
  ReplanCase decision{.options = {},
                      .now = now,
                      .seconds = seconds,
                      .tried = of_this_kind,
                      .steps_left = steps_left(run, step),
                      .move_seconds = move_seconds(run, history),
                      .gate = c.parallel.replan_gate};
  for (const MeshPlan& p :
       plan_meshes(c, history.place, history.machine, run.ranks.mesh.ranks, search))
    decision.options.push_back({choice_of(p), p.time.seconds, p.fits});
  if (c.parallel.plan == PlanChoice::kAuto) return better_plan(decision);

  std::erase_if(decision.options,
                [&](const ReplanCase::Option& o) { return !o.fits || o.choice == now; });
  if (decision.options.empty()) return {};
  const size_t which = random_below(decision.options.size(), c.train.seed, Stream::kChoice,
                                    static_cast<uint64_t>(step.step), 0);
  return BetterPlan{decision.options[which].choice, decision.options[which].predicted};
}

std::string Replan::ask(Run& run, const StepPlan& step, double seconds) {
  if (!replans(run.config) || run.ranks.mesh.ranks == 1 || has_own_layout(run.config, step.phase))
    return {};
  if (step.phase != phase_ || step.batch_tokens != batch_tokens_) {
    seconds_.clear(), over_mean_ = {};
    phase_ = step.phase, batch_tokens_ = step.batch_tokens;
  }
  seconds_.push_back(seconds);
  if (const Tensor& load = run.trainer->load(); !load.empty()) {
    std::vector<double> rows(static_cast<size_t>(load.count()));
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<double>(load.as<int64_t>()[i]);
    over_mean_.add(rows, load.dims[1], run.config.model.experts, run.ranks.mesh.ranks);
  }
  const bool is_due =
      static_cast<int64_t>(seconds_.size()) >= run.config.parallel.replan_every_steps;
  if (!is_due || steps_left(run, step) == 0) return {};

  struct Answer {
    bool moves = false;
    BetterPlan plan;
  } answer;
  const double measured = quantile_of(seconds_, 0.5);
  try {
    const std::optional<BetterPlan> better =
        run.first() ? decide(run, step, measured) : std::nullopt;
    if (better) answer = {true, *better};
  } catch (const Error& e) {  // advice is no reason to end
    log_event(Level::kWarning, "run.no_plan", "step={} reason=\"{}\"", step.step + 1, e.what());
  }
  seconds_.clear(), over_mean_ = {};
  answer = value_of_first(run.ranks.world, answer);
  if (!answer.moves) return {};
  run.options.kept->plans.choice = answer.plan.choice;
  return fmt::format("the planner: {:.1f} ms a step, {:.1f} expected", 1e3 * measured,
                     1e3 * answer.plan.seconds);
}

}  // namespace moraine
