// Sampler: picks the next token from logits, as a function of (seed, position).
//
//   A logit that is NaN counts as the least likely.
//   temperature 0: arg-max, the lower id on a tie. Else Gumbel-max: arg-max of logit/temperature + gumbel(u),
//   u = random_uniform(seed, kSample, position, id), over the ids that survive, in this order:
//     top_k  the k most likely (0: all)
//     top_p  the smallest set of most likely ids whose probabilities reach p (1: all)
//     min_p  ids at least min_p times as likely as the most likely (0: all)
//   Probabilities are of softmax(logits / temperature).
// Cost: V log V only if top_p or top_k filter.
#pragma once

#include <cstdint>
#include <span>

namespace moraine {

struct SamplingOptions {
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  uint64_t seed = 0;
};

// Errors: kInvalidArgument names the option and what is allowed.
void check_sampling(const SamplingOptions& options);

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     int64_t position);

}  // namespace moraine
