// Candidates: a threshold on upper bounds, for each kind of draw.
#include "infer/candidates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "infer/gumbel.h"
#include "kernels/random_row.h"

namespace moraine {
namespace {

constexpr double kLeastMinP = 1e-6;  // added to a sum of 2^31 weights it still changes the sum

struct Range {
  float top;    // the largest lower bound
  float upper;  // the largest upper one
  double margin(double temperature) const {
    return 0x1p-40 * (std::abs(static_cast<double>(top)) + std::abs(static_cast<double>(upper)) +
                      64 * temperature);
  }
};

Range range_of(const LogitBounds& l) {
  Range range = {-INFINITY, -INFINITY};
  for (const float lower : l.lower) range.top = std::max(range.top, lower);
  for (const float upper : l.upper) range.upper = std::max(range.upper, upper);
  return range;
}

std::vector<int32_t> reaching(std::span<const float> upper, double threshold) {
  std::vector<int32_t> ids;
  for (size_t v = 0; v < upper.size(); ++v) {
    if (static_cast<double>(upper[v]) >= threshold && upper[v] > -INFINITY)
      ids.push_back(static_cast<int32_t>(v));
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
  Race(const LogitBounds& logits, const Range& range, double temperature)
      : l_(logits), range_(range), temperature_(temperature), margin_(range.margin(temperature)) {}

  void enter(size_t v, uint64_t bits) {
    const auto upper = static_cast<double>(l_.upper[v]);
    const bool could_lead = l_.upper[v] >= range_.top;
    // Most can not win whatever their noise is: no logarithm for them. Never true for -inf.
    if (!(upper + temperature_ * most_gumbel(bits) >= best_ - margin_) && !could_lead) return;
    if (l_.upper[v] == -INFINITY) return;
    const double noise = temperature_ * gumbel(bits);
    best_ = std::max(best_, static_cast<double>(l_.lower[v]) + noise);
    entered_.push_back({static_cast<int32_t>(v), could_lead, upper + noise});
  }

  std::vector<int32_t> finishers() const {
    std::vector<int32_t> ids;
    for (const Entry& e : entered_) {
      if (e.could_lead || e.most >= best_ - margin_) ids.push_back(e.id);
    }
    return ids;
  }

 private:
  struct Entry {
    int32_t id;
    bool could_lead;
    double most;
  };
  const LogitBounds& l_;
  const Range range_;
  const double temperature_, margin_;
  double best_ = -INFINITY;
  std::vector<Entry> entered_;
};

std::vector<int32_t> race(const LogitBounds& logits, const Range& range, const SamplingOptions& o,
                          int64_t position) {
  Race race(logits, range, o.temperature);
  const uint64_t seed = draw_seed(o);
  constexpr size_t kBlock = 256;
  std::array<uint64_t, kBlock> bits;
  for (size_t begin = 0; begin < logits.upper.size(); begin += kBlock) {
    const std::span<uint64_t> block(bits.data(), std::min(kBlock, logits.upper.size() - begin));
    random_row({.bits = block,
                .seed = seed,
                .stream = Stream::kSample,
                .step = static_cast<uint64_t>(position),
                .first = begin});
    for (size_t i = 0; i < block.size(); ++i) race.enter(begin + i, block[i]);
  }
  return race.finishers();
}

}  // namespace

bool has_candidates(const SamplingOptions& o, int64_t vocab_size) {
  if (o.temperature == 0) return true;
  if (o.top_k > 0) return o.top_k < vocab_size;
  if (o.top_p < 1) return false;
  return o.min_p == 0 || o.min_p >= kLeastMinP;
}

std::vector<int32_t> find_candidates(const LogitBounds& l, const SamplingOptions& o,
                                     int64_t position) {
  const Range range = range_of(l);
  const auto top = static_cast<double>(range.top);
  if (o.temperature == 0) return reaching(l.upper, top);
  if (o.top_k > 0) return reaching(l.upper, static_cast<double>(kth_largest(l.lower, o.top_k)));
  if (o.min_p > 0)
    return reaching(l.upper, top + o.temperature * std::log(o.min_p) - range.margin(o.temperature));
  return race(l, range, o, position);
}

}  // namespace moraine
