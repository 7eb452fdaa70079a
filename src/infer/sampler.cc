// Sampler: filters, then an arg-max over logits with Gumbel noise.
#include "infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "infer/draw_row.h"
#include "infer/gumbel.h"

namespace moraine {
namespace {

// A logit that is NaN (of a model that diverged) is below all others.
float order(float logit) { return std::isnan(logit) ? -INFINITY : logit; }

int32_t most_likely_of(std::span<const int32_t> ids, std::span<const float> logits) {
  int32_t best = ids.front();
  for (const int32_t id : ids) {
    if (order(logits[static_cast<size_t>(id)]) > order(logits[static_cast<size_t>(best)]))
      best = id;
  }
  return best;
}

// Log of how many times as likely as the most likely. At most 0, so that no temperature is too cold for it.
double log_ratio(float logit, float top, double temperature) {
  return order(logit) == order(top)
             ? 0
             : (static_cast<double>(order(logit)) - static_cast<double>(top)) / temperature;
}

// By falling logit, ties by rising id.
void sort_by_likelihood(std::vector<int32_t>& ids, std::span<const float> logits) {
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    const float x = order(logits[static_cast<size_t>(a)]),
                y = order(logits[static_cast<size_t>(b)]);
    return x != y ? x > y : a < b;
  });
}

bool filters(const SamplingOptions& o) { return o.top_k > 0 || o.top_p < 1 || o.min_p > 0; }

// Keeps the ids that pass top_k, top_p and min_p; `ids` are by falling likelihood.
void filter(std::vector<int32_t>& ids, std::span<const float> logits, const SamplingOptions& o) {
  if (o.top_k > 0 && o.top_k < static_cast<int64_t>(ids.size()))
    ids.resize(static_cast<size_t>(o.top_k));
  const float top = logits[static_cast<size_t>(ids[0])];
  std::vector<double> weight;
  for (const int32_t id : ids)
    weight.push_back(std::exp(log_ratio(logits[static_cast<size_t>(id)], top, o.temperature)));
  const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  size_t kept = 0;
  double sum = 0;
  while (kept < ids.size() && (kept == 0 || (sum < o.top_p * total && weight[kept] >= o.min_p)))
    sum += weight[kept++];
  ids.resize(kept);
}

// The arg-max of ratio + Gumbel noise, the lower id on a tie.
class Draw {
 public:
  // `first`: the most likely token. Its score is known at once, so that few others are looked at.
  Draw(std::span<const float> logits, const SamplingOptions& o, int64_t position, int32_t first)
      : logits_(logits),
        top_(logits[static_cast<size_t>(first)]),
        temperature_(o.temperature),
        one_by_temperature_(1 / o.temperature),
        seed_(draw_seed(o)),
        position_(position),
        best_(first) {
    offer(first, draw_short(seed_, position_, first));
  }

  void offer(int32_t id, uint16_t upper) {
    const float logit = logits_[static_cast<size_t>(id)];
    // Most ids can not win whatever the rest of their word is: no logarithm and no division for them.
    const double below = static_cast<double>(logit) - static_cast<double>(top_);
    if (below < (score_ - most_gumbel(upper)) * temperature_) return;
    const double score =
        log_ratio(logit, top_, temperature_) + gumbel(draw_word(seed_, position_, id, upper));
    if (score < score_ || (score == score_ && id >= best_) || std::isnan(score)) return;
    score_ = score;
    best_ = id;
  }
  void offer(int32_t id) { offer(id, draw_short(seed_, position_, id)); }
  // A smaller short is not worth an offer of ids whose logits are `largest` or less.
  uint16_t least_short_of(float largest) const {
    const double below = static_cast<double>(largest) - static_cast<double>(top_);
    return least_short(score_ - below * one_by_temperature_);
  }
  int32_t best() const { return best_; }
  uint64_t seed() const { return seed_; }

 private:
  const std::span<const float> logits_;
  const float top_;
  const double temperature_, one_by_temperature_;
  const uint64_t seed_;
  const int64_t position_;
  int32_t best_;
  double score_ = -INFINITY;
};

}  // namespace

void check_sampling(const SamplingOptions& o, int64_t vocab_size) {
  const auto fail = [](const char* name, double value, const char* allowed) {
    throw_error(Code::kInvalidArgument, "{} = {}: allowed is {}", name, value, allowed);
  };
  if (!(o.temperature >= 0 && o.temperature <= 100))
    fail("temperature", o.temperature, "0 (greedy) to 100");
  if (o.top_k < 0) fail("top_k", static_cast<double>(o.top_k), "0 (all) or more");
  if (!(o.top_p > 0 && o.top_p <= 1)) fail("top_p", o.top_p, "above 0, up to 1 (all)");
  if (!(o.min_p >= 0 && o.min_p <= 1)) fail("min_p", o.min_p, "0 (all) to 1");
  if (o.choice < 0) fail("choice", static_cast<double>(o.choice), "0 or more");
  if (!(o.repetition_penalty > 0 && o.repetition_penalty <= 100))
    fail("repetition_penalty", o.repetition_penalty, "above 0, up to 100; 1 is none");
  if (!(std::abs(o.presence_penalty) <= 100))
    fail("presence_penalty", o.presence_penalty, "-100 to 100; 0 is none");
  if (!(std::abs(o.frequency_penalty) <= 100))
    fail("frequency_penalty", o.frequency_penalty, "-100 to 100; 0 is none");
  for (const auto& [id, bias] : o.logit_bias) {
    if (id < 0 || id >= vocab_size)
      throw_error(Code::kInvalidArgument, "logit_bias: token {} is not in the vocabulary of {}", id,
                  vocab_size);
    if (!(std::abs(bias) <= 100)) fail("logit_bias", bias, "-100 to 100");
  }
}

void adjust_logits(std::span<float> logits, const SamplingOptions& o, const TokenCounts& counts) {
  for (const auto& [id, times] : counts.of_answer()) {
    float& logit = logits[static_cast<size_t>(id)];
    auto value = static_cast<double>(logit);
    value = value > 0 ? value / o.repetition_penalty : value * o.repetition_penalty;
    value -= o.frequency_penalty * static_cast<double>(times);
    if (times > 0) value -= o.presence_penalty;
    logit = static_cast<float>(value);
  }
  for (const auto& [id, bias] : o.logit_bias) {
    float& logit = logits[static_cast<size_t>(id)];
    logit = static_cast<float>(static_cast<double>(logit) + bias);
  }
}

void mask_logits(std::span<float> logits, std::span<const uint64_t> mask) {
  for (size_t i = 0; i < logits.size(); ++i) {
    if ((mask[i / 64] >> (i % 64) & 1) == 0) logits[i] = -INFINITY;
  }
}

int32_t sample_among(std::span<const int32_t> ids, std::span<const float> logits,
                     const SamplingOptions& o, int64_t position) {
  const int32_t first = most_likely_of(ids, logits);
  if (o.temperature == 0) return first;
  Draw draw(logits, o, position, first);
  std::vector<int32_t> kept;
  if (filters(o)) {
    kept.assign(ids.begin(), ids.end());
    sort_by_likelihood(kept, logits);
    filter(kept, logits, o);
    std::sort(kept.begin(), kept.end());
    ids = kept;
  }
  for (const int32_t id : ids) draw.offer(id);
  return draw.best();
}

int32_t sample_token(std::span<const float> logits, const SamplingOptions& o, int64_t position) {
  if (o.temperature > 0 && filters(o)) {
    std::vector<int32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    return sample_among(ids, logits, o, position);
  }
  const std::vector<float> largest = largest_of_runs(logits);
  const int32_t first = first_largest(logits, largest);
  if (o.temperature == 0) return first;
  Draw draw(logits, o, position, first);
  DrawRow row(draw.seed(), position);
  row.draw(
      logits.size(), [&](size_t run) { return draw.least_short_of(largest[run]); },
      [&](int32_t id, uint16_t upper) { draw.offer(id, upper); });
  return draw.best();
}

}  // namespace moraine
