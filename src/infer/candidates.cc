// Candidates: a threshold on upper bounds, for each kind of draw.
#include "infer/candidates.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "infer/draw_row.h"
#include "infer/gumbel.h"

namespace moraine {
namespace {

constexpr double kLeastMinP = 1e-6;  // added to a sum of 2^31 weights it still changes the sum

// The intervals, and what a first look at them says.
struct Bounds {
  std::span<const float> lower, upper;
  std::vector<float> upper_of_runs;
  int32_t leader;    // the token of the largest lower bound
  float top;         // that
  float most_upper;  // the largest upper one

  explicit Bounds(const LogitBounds& l)
      : lower(l.lower), upper(l.upper), upper_of_runs(largest_of_runs(l.upper)) {
    const std::vector<float> lower_of_runs = largest_of_runs(lower);
    leader = first_largest(lower, lower_of_runs);
    top = lower[static_cast<size_t>(leader)];
    most_upper = *std::max_element(upper_of_runs.begin(), upper_of_runs.end());
  }
  double margin(double temperature) const {
    return 0x1p-40 * (std::abs(static_cast<double>(top)) +
                      std::abs(static_cast<double>(most_upper)) + 64 * temperature);
  }
};

std::vector<int32_t> reaching(const Bounds& l, double threshold) {
  std::vector<int32_t> ids;
  const auto reaches = [&](float value) {
    return static_cast<double>(value) >= threshold && value > -INFINITY;
  };
  for (size_t run = 0; run < l.upper_of_runs.size(); ++run) {
    if (!reaches(l.upper_of_runs[run])) continue;
    const size_t begin = run * kRunLength, end = std::min(begin + kRunLength, l.upper.size());
    for (size_t i = begin; i < end; ++i) {
      if (reaches(l.upper[i])) ids.push_back(static_cast<int32_t>(i));
    }
  }
  return ids;
}

float kth_largest(std::span<const float> values, int64_t k) {
  std::vector<float> sorted(values.begin(), values.end());
  const auto at = sorted.begin() + k - 1;
  std::nth_element(sorted.begin(), at, sorted.end(), std::greater<>());
  return *at;
}

// Those that could win the draw, found in one pass: what is kept is measured against the best lower bound so far,
// and at the end against the best of all.
class Race {
 public:
  Race(const Bounds& logits, const SamplingOptions& o, int64_t position)
      : l_(logits),
        temperature_(o.temperature),
        margin_(logits.margin(o.temperature)),
        seed_(draw_seed(o)),
        position_(position) {
    best_ =
        static_cast<double>(l_.top) + noise_of(l_.leader, draw_short(seed_, position_, l_.leader));
  }

  std::vector<int32_t> run() {
    DrawRow row(seed_, position_);
    row.draw(
        l_.upper.size(), [&](size_t run) { return least_short_of(l_.upper_of_runs[run]); },
        [&](int32_t id, uint16_t upper) { enter(id, upper); });
    return finishers();
  }

 private:
  struct Entry {
    int32_t id;
    bool could_lead;
    double most;
  };

  double noise_of(int32_t id, uint16_t upper) const {
    return temperature_ * gumbel(draw_word(seed_, position_, id, upper));
  }

  // A smaller short of one of these tokens need not enter.
  uint16_t least_short_of(float largest) const {
    if (largest == -INFINITY) return UINT16_MAX;
    if (largest >= l_.top) return 0;  // may lead
    return least_short((best_ - margin_ - static_cast<double>(largest)) / temperature_);
  }

  void enter(int32_t id, uint16_t short_of_id) {
    const float largest = l_.upper[static_cast<size_t>(id)];
    const auto upper = static_cast<double>(largest);
    const bool could_lead = largest >= l_.top;
    // Most can not win whatever the rest of their word is: no logarithm for them.
    if (!(upper + temperature_ * most_gumbel(short_of_id) >= best_ - margin_) && !could_lead)
      return;
    if (largest == -INFINITY) return;
    const double noise = noise_of(id, short_of_id);
    best_ = std::max(best_, static_cast<double>(l_.lower[static_cast<size_t>(id)]) + noise);
    entered_.push_back({id, could_lead, upper + noise});
  }

  std::vector<int32_t> finishers() const {
    std::vector<int32_t> ids;
    for (const Entry& e : entered_) {
      if (e.could_lead || e.most >= best_ - margin_) ids.push_back(e.id);
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  }

  const Bounds& l_;
  const double temperature_, margin_;
  const uint64_t seed_;
  const int64_t position_;
  double best_;  // a score that the winner's is not below, but for rounding
  std::vector<Entry> entered_;
};

}  // namespace

bool has_candidates(const SamplingOptions& o, int64_t vocab_size) {
  if (o.temperature == 0) return true;
  if (o.top_k > 0) return o.top_k < vocab_size;
  if (o.top_p < 1) return false;
  return o.min_p == 0 || o.min_p >= kLeastMinP;
}

std::vector<int32_t> find_candidates(const LogitBounds& l, const SamplingOptions& o,
                                     int64_t position) {
  const Bounds bounds(l);
  const auto top = static_cast<double>(bounds.top);
  if (o.temperature == 0) return reaching(bounds, top);
  if (o.top_k > 0) return reaching(bounds, static_cast<double>(kth_largest(l.lower, o.top_k)));
  if (o.min_p > 0)
    return reaching(bounds, top + o.temperature * std::log(o.min_p) - bounds.margin(o.temperature));
  return Race(bounds, o, position).run();
}

}  // namespace moraine
