// Filters, then an arg-max over logits with Gumbel noise.
#include "infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/random.h"

namespace moraine {
namespace {

// Ids by falling logit, ties by rising id.
std::vector<int32_t> by_likelihood(std::span<const float> logits) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  return ids;
}

// Keeps the ids that pass top_k, top_p and min_p; `ids` are by falling likelihood.
void filter(std::vector<int32_t>& ids, std::span<const float> logits, const SamplingOptions& o) {
  if (o.top_k > 0 && o.top_k < static_cast<int64_t>(ids.size())) ids.resize(static_cast<size_t>(o.top_k));
  const double top = static_cast<double>(logits[static_cast<size_t>(ids[0])]);
  std::vector<double> weight;
  for (const int32_t id : ids) weight.push_back(std::exp((static_cast<double>(logits[static_cast<size_t>(id)]) - top) / o.temperature));
  const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  size_t kept = 0;
  double sum = 0;
  while (kept < ids.size() && (kept == 0 || (sum < o.top_p * total && weight[kept] >= o.min_p))) sum += weight[kept++];
  ids.resize(kept);
}

}  // namespace

void check_sampling(const SamplingOptions& o) {
  const auto fail = [](const char* name, double value, const char* allowed) {
    throw_error(Code::kInvalidArgument, "{} = {}: allowed is {}", name, value, allowed);
  };
  if (!(o.temperature >= 0 && o.temperature <= 100)) fail("temperature", o.temperature, "0 (greedy) to 100");
  if (o.top_k < 0) fail("top_k", static_cast<double>(o.top_k), "0 (all) or more");
  if (!(o.top_p > 0 && o.top_p <= 1)) fail("top_p", o.top_p, "above 0, up to 1 (all)");
  if (!(o.min_p >= 0 && o.min_p <= 1)) fail("min_p", o.min_p, "0 (all) to 1");
}

int32_t sample_token(std::span<const float> logits, const SamplingOptions& o, int64_t position) {
  if (o.temperature == 0) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
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
    const double u = random_uniform(o.seed, Stream::kSample, static_cast<uint64_t>(position), static_cast<uint64_t>(id));
    const double score = static_cast<double>(logits[static_cast<size_t>(id)]) / o.temperature - std::log(-std::log(u));
    if (score > best_score) {
      best_score = score;
      best = id;
    }
  }
  return best;
}

}  // namespace moraine
