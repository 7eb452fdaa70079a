// Candidates: a threshold on upper bounds, for each kind of draw.
#include "infer/candidates.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "infer/gumbel.h"

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

std::span<const float> block_at(std::span<const float> values, size_t begin) {
  return values.subspan(begin, std::min(kDrawBlock, values.size() - begin));
}

std::vector<int32_t> reaching(std::span<const float> upper, double threshold) {
  std::vector<int32_t> ids;
  const auto reaches = [&](float value) {
    return static_cast<double>(value) >= threshold && value > -INFINITY;
  };
  for (size_t begin = 0; begin < upper.size(); begin += kDrawBlock) {
    const std::span<const float> block = block_at(upper, begin);
    if (!reaches(largest_of(block))) continue;
    for (size_t i = 0; i < block.size(); ++i) {
      if (reaches(block[i])) ids.push_back(static_cast<int32_t>(begin + i));
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
  Race(const LogitBounds& logits, const Range& range, double temperature)
      : l_(logits), range_(range), temperature_(temperature), margin_(range.margin(temperature)) {}

  // A smaller word of one of these tokens need not enter.
  uint64_t least_word_of(size_t begin, size_t size) const {
    const float largest = largest_of(l_.upper.subspan(begin, size));
    if (largest == -INFINITY) return UINT64_MAX;
    if (largest >= range_.top) return 0;  // may lead
    return least_word((best_ - margin_ - static_cast<double>(largest)) / temperature_);
  }

  void enter(size_t v, uint64_t bits) {
    const auto upper = static_cast<double>(l_.upper[v]);
    const bool could_lead = l_.upper[v] >= range_.top;
    // Most can not win whatever their noise is: no logarithm for them.
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
  DrawBlock block(draw_seed(o), position);
  const size_t end = logits.upper.size();
  for (size_t begin = 0, size; begin < end; begin += size) {
    size = DrawBlock::size_at(begin, end);
    block.draw(begin, size, race.least_word_of(begin, size),
               [&](size_t i, uint64_t word) { race.enter(begin + i, word); });
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
  const Range range = {.top = largest_of(l.lower), .upper = largest_of(l.upper)};
  const auto top = static_cast<double>(range.top);
  if (o.temperature == 0) return reaching(l.upper, top);
  if (o.top_k > 0) return reaching(l.upper, static_cast<double>(kth_largest(l.lower, o.top_k)));
  if (o.min_p > 0)
    return reaching(l.upper, top + o.temperature * std::log(o.min_p) - range.margin(o.temperature));
  return race(l, range, o, position);
}

}  // namespace moraine
