// ExpertPlacer: averages, one gather, a plan for each layer.
#include "parallel/expert_placer.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "parallel/placer_averages.h"
#include "parallel/plan_placement.h"

namespace moraine {
namespace {

constexpr uint64_t kPlacementSeed = 1;

}  // namespace

// What all members know alike.
struct ExpertPlacer::Seen {
  std::vector<int64_t> rows;                     // [M, L, E] times kRowUnit
  std::vector<double> forward_nanoseconds = {};  // [M] of a row in a forward pass; 0: not known
  double median = 1;                             // nanoseconds of a row, of a whole step
};

ExpertPlacer::ExpertPlacer(ExpertExchange& exchange, Communicator& comm,
                           const PlacerOptions& options)
    : exchange_(&exchange), comm_(&comm), options_(options) {
  MR_CHECK(exchange.slots() > 0 && comm.size() == exchange.senders());
  rows_.assign(static_cast<size_t>(options.layers * exchange.shape().experts), 0);
  slowness_.assign(static_cast<size_t>(comm.size()), 1);
}

void ExpertPlacer::observe(const Tensor& load, const ExpertWork& work) {
  const int64_t E = exchange_->shape().experts, classes = load.dims[1];
  for (int64_t i = 0; i < options_.layers * E; ++i) {
    const int64_t now = load.as<int64_t>()[i / E * classes + i % E] * kRowUnit;
    int64_t& average = rows_[static_cast<size_t>(i)];
    average = seen_any_ ? average + (now - average) / kMemorySums : now;
  }
  const double served = static_cast<double>(work.all_rows);
  all_served_ = seen_any_ ? all_served_ + (served - all_served_) / kMemorySums : served;
  row_time_.add(work.seconds, work.rows);
  forward_time_.add(work.least_row_seconds, work.least_row_seconds > 0 ? 1 : 0);
  seen_any_ = true;
}

std::optional<PlacementChange> ExpertPlacer::place(int64_t step) {
  if (options_.mode == PlacementMode::kStatic) return {};
  if (options_.mode == PlacementMode::kShuffled) return shuffle(step);
  if (step % options_.every_steps != 0 || !seen_any_) return {};
  const Seen seen = gather();
  const std::vector<double> was = slowness_;
  find_slow(seen.forward_nanoseconds, slowness_);
  PlacementChange change{.reason = was == slowness_ ? "load" : "speed"};
  double before = 0, after = 0, mean = 0;
  for (int64_t l = 0; l < options_.layers; ++l) {
    const PlacementLoad load = layer_load(seen, l);
    const PlacementShape& shape = exchange_->shape();
    before += static_cast<double>(busiest_work(shape, load, exchange_->placement(l)));
    change.layers += place_layer(seen, l, change) ? 1 : 0;
    after += static_cast<double>(busiest_work(shape, load, exchange_->placement(l)));
    mean += static_cast<double>(level_work(load));
  }
  if (change.layers == 0) return {};
  if (mean > 0) change.over_mean_before = before / mean, change.over_mean_after = after / mean;
  count_guests(change);
  return change;
}

ExpertPlacer::Seen ExpertPlacer::gather() const {
  const size_t own = rows_.size(), members = slowness_.size();
  std::vector<int64_t> mine = rows_;
  double rows = 0;
  for (const int64_t r : rows_) rows += static_cast<double>(r) / static_cast<double>(kRowUnit);
  for (const double x : {forward_time_.nanoseconds() * kNanosecondUnit,
                         row_time_.nanoseconds() * kNanosecondUnit, rows})
    mine.push_back(std::llround(x));
  std::vector<int64_t> all(mine.size() * members);
  all_gather_equal(*comm_, std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  Seen seen;
  double all_rows = 0;
  for (size_t m = 0; m < members; ++m)
    all_rows += static_cast<double>(all[(m + 1) * mine.size() - 1]);
  // A row of a step passes more than once where forward passes are computed again.
  const double passes = all_rows > 0 ? all_served_ / all_rows : 1;
  std::vector<double> known;
  for (size_t m = 0; m < members; ++m) {
    const int64_t* of = all.data() + m * mine.size();
    seen.rows.insert(seen.rows.end(), of, of + own);
    seen.forward_nanoseconds.push_back(static_cast<double>(of[own]) / kNanosecondUnit);
    if (of[own + 1] > 0)
      known.push_back(static_cast<double>(of[own + 1]) / kNanosecondUnit * passes);
  }
  std::sort(known.begin(), known.end());
  if (!known.empty()) seen.median = known[(known.size() - 1) / 2];
  return seen;
}

PlacementLoad ExpertPlacer::layer_load(const Seen& seen, int64_t layer) const {
  const int64_t E = exchange_->shape().experts;
  PlacementLoad load;
  for (size_t m = 0; m < slowness_.size(); ++m) {
    const auto from = seen.rows.begin() + static_cast<int64_t>(m) * options_.layers * E + layer * E;
    load.rows.insert(load.rows.end(), from, from + E);
    load.cost.push_back(std::max<int64_t>(1, std::llround(seen.median * slowness_[m])));
  }
  return load;
}

double ExpertPlacer::traffic_bytes(const ExpertPlacement& placement) const {
  const PlacementShape& shape = exchange_->shape();
  int64_t pairs = 0;
  for (size_t i = 0; i < placement.server.size(); ++i)
    pairs += placement.server[i] != shape.home(static_cast<int64_t>(i) % shape.experts) ? 1 : 0;
  return static_cast<double>(guest_count(shape, placement) * options_.weight_bytes +
                             pairs * options_.gradient_bytes);
}

bool ExpertPlacer::place_layer(const Seen& seen, int64_t layer, PlacementChange& change) {
  const PlacementShape& shape = exchange_->shape();
  const PlacementLoad load = layer_load(seen, layer);
  const ExpertPlacement now = exchange_->placement(layer);
  const ExpertPlacement next = plan_placement(shape, load, now);
  if (next == now) return false;
  const auto seconds = [&](const ExpertPlacement& placement) {
    return static_cast<double>(busiest_work(shape, load, placement)) * 1e-9 / kRowUnit;
  };
  // All members send at once, so each has its share of the bytes.
  const double more = (traffic_bytes(next) - traffic_bytes(now)) /
                      static_cast<double>(shape.members) / options_.bytes_per_second;
  const double gain = seconds(now) - seconds(next) - more;
  if (gain <= options_.gate * seconds(now)) return false;
  change.gain_seconds += gain;
  change.new_guests += moraine::new_guests(shape, now, next);
  exchange_->place(layer, next);
  return true;
}

PlacementChange ExpertPlacer::shuffle(int64_t step) {
  PlacementChange change{.reason = "shuffle", .layers = options_.layers};
  const PlacementShape& shape = exchange_->shape();
  for (int64_t l = 0; l < options_.layers; ++l) {
    const ExpertPlacement next = shuffled_placement(
        shape, kPlacementSeed, static_cast<uint64_t>(step * options_.layers + l));
    change.new_guests += new_guests(shape, exchange_->placement(l), next);
    exchange_->place(l, next);
  }
  count_guests(change);
  return change;
}

void ExpertPlacer::count_guests(PlacementChange& change) const {
  double bytes = 0;
  for (int64_t l = 0; l < options_.layers; ++l) {
    change.guests += guest_count(exchange_->shape(), exchange_->placement(l));
    bytes += traffic_bytes(exchange_->placement(l));
  }
  change.bytes = std::llround(bytes);
}

}  // namespace moraine
