// Sampler: filters, then an arg-max over logits with Gumbel noise.
#include "infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/random.h"

namespace moraine {
namespace {

// A logit that is NaN (of a model that diverged) is below all others.
float order(float logit) { return std::isnan(logit) ? -INFINITY : logit; }

int32_t most_likely(std::span<const float> logits) {
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i) {
    if (order(logits[i]) > order(logits[best])) best = i;
  }
  return static_cast<int32_t>(best);
}

// Log of how many times as likely as the most likely. At most 0, so that no temperature is too cold for it.
double log_ratio(float logit, float top, double temperature) {
  return order(logit) == order(top)
             ? 0
             : (static_cast<double>(order(logit)) - static_cast<double>(top)) / temperature;
}

// Ids by falling logit, ties by rising id.
std::vector<int32_t> by_likelihood(std::span<const float> logits) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    const float x = order(logits[static_cast<size_t>(a)]),
                y = order(logits[static_cast<size_t>(b)]);
    return x != y ? x > y : a < b;
  });
  return ids;
}

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

}  // namespace

void check_sampling(const SamplingOptions& o) {
  const auto fail = [](const char* name, double value, const char* allowed) {
    throw_error(Code::kInvalidArgument, "{} = {}: allowed is {}", name, value, allowed);
  };
  if (!(o.temperature >= 0 && o.temperature <= 100))
    fail("temperature", o.temperature, "0 (greedy) to 100");
  if (o.top_k < 0) fail("top_k", static_cast<double>(o.top_k), "0 (all) or more");
  if (!(o.top_p > 0 && o.top_p <= 1)) fail("top_p", o.top_p, "above 0, up to 1 (all)");
  if (!(o.min_p >= 0 && o.min_p <= 1)) fail("min_p", o.min_p, "0 (all) to 1");
}

int32_t sample_token(std::span<const float> logits, const SamplingOptions& o, int64_t position) {
  const int32_t first = most_likely(logits);
  if (o.temperature == 0) return first;
  const float top = logits[static_cast<size_t>(first)];
  std::vector<int32_t> ids;
  if (o.top_k > 0 || o.top_p < 1 || o.min_p > 0) {
    ids = by_likelihood(logits);
    filter(ids, logits, o);
    std::sort(ids.begin(), ids.end());
  } else {
    ids.resize(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
  }
  int32_t best = ids[0];
  double best_score = -INFINITY;
  for (const int32_t id : ids) {
    const double u = random_uniform(o.seed, Stream::kSample, static_cast<uint64_t>(position),
                                    static_cast<uint64_t>(id));
    const double score =
        log_ratio(logits[static_cast<size_t>(id)], top, o.temperature) - std::log(-std::log(u));
    if (score > best_score) {
      best_score = score;
      best = id;
    }
  }
  return best;
}

}  // namespace moraine
