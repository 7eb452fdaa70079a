// ServingPlacer: averages, one small gather, a plan for each layer, and weights on their way.
#include "parallel/serving_placer.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "parallel/placer_averages.h"
#include "parallel/plan_guests.h"

namespace moraine {
namespace {

constexpr double kCost = 64;  // of a row at a member that is not slow
constexpr double kBytesPerSecond =
    5e9;  // between members, as in training where it was not measured
constexpr uint64_t kGuestSeed = 3;

// Slots that are the same in both.
GuestTable kept(const GuestTable& now, const GuestTable& next) {
  GuestTable table = now;
  for (size_t i = 0; i < table.expert.size(); ++i)
    if (next.expert[i] != now.expert[i]) table.expert[i] = -1;
  return table;
}

}  // namespace

PlacementMode placement_mode(const std::string& name) {
  if (name == "static") return PlacementMode::kStatic;
  if (name == "balanced") return PlacementMode::kBalanced;
  if (name == "shuffled") return PlacementMode::kShuffled;
  throw_error(Code::kInvalidArgument, "placement {}: wanted static, balanced or shuffled", name);
}

GatherPlaces gather_places(const Communicator& comm, const ServingPlacement& p, int64_t layers,
                           int64_t experts) {
  GatherPlaces places{.layers = layers};
  if (p.mode == PlacementMode::kStatic || comm.size() == 1) return places;
  // Of the rank that holds most: all have as many slots.
  const int64_t held = (experts + comm.size() - 1) / comm.size();
  places.slots = std::min(p.slots, experts - held);
  places.shuffled = p.mode == PlacementMode::kShuffled;
  for (int i = 0; i < comm.size() && !p.across_hosts; ++i)
    places.hosts.push_back(comm.transport().host_of(comm.global_rank(i)));
  return places;
}

ServingPlacer::ServingPlacer(ExpertGather& gather, ServingGuests* guests,
                             const ServingPlacement& options)
    : gather_(&gather), guests_(guests), options_(options), layers_(gather.layers()) {
  MR_CHECK(options.every_steps > 0, "every %ld steps", long(options.every_steps));
  rows_.assign(static_cast<size_t>(layers_ * gather.shape().experts), 0);
  slowness_.assign(static_cast<size_t>(gather.shape().members), 1);
}

void ServingPlacer::end_step() {
  ++steps_;
  const bool due = steps_ % options_.every_steps == 0;
  if (due) observe();
  if (guests_ == nullptr) return;
  if (options_.mode == PlacementMode::kShuffled) return shuffle();
  if (coming_) {
    if (arrived_everywhere()) use();
  } else if (due) {
    plan();
  }
}

std::optional<PlacementChange> ServingPlacer::take_change() {
  std::optional<PlacementChange> change;
  std::swap(change, came_);
  return change;
}

// What is known -------------------------------------------------------------------------------------

void ServingPlacer::observe() {
  const GatherWork work = gather_->take_work();
  for (size_t i = 0; i < rows_.size(); ++i) {
    const int64_t now = work.expert_work[i] * kRowUnit;
    rows_[i] = seen_any_ ? rows_[i] + (now - rows_[i]) / kMemorySums : now;
  }
  seen_any_ = true;
  row_time_.add(work.least_row_seconds, work.least_row_seconds > 0 ? 1 : 0);
  pass_seconds_ = work.work > 0 ? work.seconds / static_cast<double>(work.work) : 0;
  for (const auto& [recent, now] :
       {std::pair{&recent_busiest_, work.busiest}, std::pair{&recent_home_, work.home_busiest},
        std::pair{&recent_all_, work.home_all}})
    *recent = *recent * (1 - 1.0 / kMemorySums) + static_cast<double>(now);
  if (recent_all_ == 0) return;
  const double mean = recent_all_ / static_cast<double>(gather_->shape().members);
  load_.rank_load_over_mean = recent_busiest_ / mean;
  load_.home_load_over_mean = recent_home_ / mean;
}

// What a row costs at each member, and the time of one: the same on all.
void ServingPlacer::find_costs() {
  row_seconds_ = options_.row_seconds;
  if (row_seconds_ > 0) return;
  const size_t members = slowness_.size();
  const int64_t mine[2] = {std::llround(row_time_.nanoseconds() * kNanosecondUnit),
                           std::llround(pass_seconds_ * 1e9 * kNanosecondUnit)};
  std::vector<int64_t> all(2 * members);
  all_gather_equal(gather_->comm(), std::as_bytes(std::span(mine)),
                   std::as_writable_bytes(std::span(all)));
  std::vector<double> rows, passes;
  for (size_t m = 0; m < members; ++m) {
    rows.push_back(static_cast<double>(all[2 * m]) / kNanosecondUnit);
    if (all[2 * m + 1] > 0) passes.push_back(static_cast<double>(all[2 * m + 1]) / kNanosecondUnit);
  }
  find_slow(rows, slowness_);
  std::sort(passes.begin(), passes.end());
  row_seconds_ = passes.empty() ? 0 : 1e-9 * passes[(passes.size() - 1) / 2];
  std::vector<int64_t> cost;
  for (const double times : slowness_) cost.push_back(std::llround(kCost * times));
  gather_->set_cost(std::move(cost));
}

// Plans ---------------------------------------------------------------------------------------------

// Work of the busiest member, in average rows between two plans.
double ServingPlacer::busiest(std::span<const int64_t> rows, const GuestTable& table) const {
  RowSplit split;
  split_rows(gather_->shape(), split_routes(gather_->shape(), table), rows, gather_->cost(),
             &split);
  const int64_t most = *std::max_element(split.work.begin(), split.work.end());
  return static_cast<double>(most) / (kCost * kRowUnit);
}

void ServingPlacer::plan() {
  const std::vector<double> was = slowness_;
  find_costs();
  PlacementChange change{.reason = was == slowness_ ? "load" : "speed"};
  Sums sums;
  for (int64_t l = 0; l < layers_; ++l) plan_layer(l, change, sums);
  if (change.layers == 0) return;
  if (sums.level > 0)
    change.over_mean_before = sums.before / sums.level,
    change.over_mean_after = sums.after / sums.level;
  coming_ = change;
  if (arrived_everywhere()) use();  // none needs weights
}

void ServingPlacer::plan_layer(int64_t layer, PlacementChange& change, Sums& sums) {
  const SplitShape& shape = gather_->shape();
  const auto rows = std::span<const int64_t>(rows_).subspan(
      static_cast<size_t>(layer * shape.experts), static_cast<size_t>(shape.experts));
  const GuestTable now = guests_->table(layer);
  const GuestTable next = plan_guests(shape, rows, gather_->cost(), now);
  const double before = busiest(rows, now);
  double all = 0, rate = 0;
  for (const int64_t r : rows) all += static_cast<double>(r) / kRowUnit;
  for (const int64_t c : gather_->cost()) rate += kCost / static_cast<double>(c);
  sums.before += before, sums.level += all / rate;
  const double after = next == now ? before : busiest(rows, next);
  // All members send at once, so each has its share of the bytes.
  const int64_t bytes = count_new_guests(now, next) * guests_->bytes_of_guest(layer);
  const double sending =
      static_cast<double>(bytes) / static_cast<double>(shape.members) / kBytesPerSecond;
  const double gain = (before - after) * row_seconds_ - sending;
  const bool pays = next != now && before > after && gain >= options_.gate * before * row_seconds_;
  sums.after += pays ? after : before;
  if (!pays) return;
  ++change.layers;
  change.new_guests += count_new_guests(now, next);
  change.bytes += bytes;
  change.gain_seconds += gain / static_cast<double>(options_.every_steps);
  send(layer, next);
}

// Weights on their way ------------------------------------------------------------------------------

void ServingPlacer::send(int64_t layer, const GuestTable& next) {
  gather_->set_guests(layer, kept(guests_->table(layer), next));
  guests_->send(layer, next);
}

bool ServingPlacer::arrived_everywhere() {
  const int64_t mine = guests_->arrived() ? 1 : 0;
  std::vector<int64_t> all(slowness_.size());
  all_gather_equal(gather_->comm(), std::as_bytes(std::span(&mine, 1)),
                   std::as_writable_bytes(std::span(all)));
  return std::count(all.begin(), all.end(), 0) == 0;
}

void ServingPlacer::use() {
  guests_->wait();  // throws what went wrong
  load_.guests = 0;
  for (int64_t l = 0; l < layers_; ++l) {
    if (gather_->guests(l) != guests_->table(l)) gather_->set_guests(l, guests_->table(l));
    load_.guests += count_guests(guests_->table(l));
  }
  ++load_.placed;
  load_.bytes_sent = guests_->bytes_sent();
  coming_->guests = load_.guests;
  came_ = coming_;
  coming_.reset();
}

// Another table for each layer, in use from the next step on.
void ServingPlacer::shuffle() {
  PlacementChange change{.reason = "shuffle", .layers = layers_};
  for (int64_t l = 0; l < layers_; ++l) {
    const GuestTable next =
        shuffled_guests(gather_->shape(), kGuestSeed, static_cast<uint64_t>(steps_ * layers_ + l));
    const int64_t fresh = count_new_guests(guests_->table(l), next);
    change.new_guests += fresh;
    change.bytes += fresh * guests_->bytes_of_guest(l);
    send(l, next);
  }
  coming_ = change;
  use();
  if (load_.placed > 1) came_.reset();  // one says it for all
}

}  // namespace moraine
