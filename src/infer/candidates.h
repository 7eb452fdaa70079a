// Candidates: the tokens that a draw could give, where logits are only known to lie in intervals.
//
//   l[v] = logit of v after penalties, biases and mask; lower[v] <= l[v] <= upper[v], -inf both where masked
//   sample_among(candidates, l, ...) == sample_token(l, ...), whatever l is within the intervals
//
// What is kept, T the temperature, g[v] the noise of v's random word, top = max_v lower[v]; every set also has all v
// with upper[v] >= top, among them the most likely token, whose logit the others are measured against:
//
//   temperature 0   nothing else. The most likely token's logit is at least top, and its ties are kept too.
//   no filter       upper[v] + T g[v] >= max_u (lower[u] + T g[u]) - margin
//                   The draw is the arg-max of l/T + g, so the token that wins has l + T g >= that maximum.
//   top_k           upper[v] >= the k-th largest lower. The k-th largest l is at least that, so the k most likely, with
//                   ties, are kept. What follows (top_p, min_p, the draw) sees only them, in the same order.
//   min_p alone     upper[v] >= top + T log(min_p) - margin. Weights relative to the most likely are at least min_p of
//                   all that survive, so the sum that top_p = 1 asks for is reached behind the last of them.
//
// top_p without top_k has to know the sum over all tokens, and a log-probability too: no set is enough for these, nor
// for top_k of all tokens, nor for a min_p so small (below 1e-6) that sums of weights could swallow it.
//
// Margin:  scores are computed in double from differences to the most likely logit, which are within 42 T for
//          any token that could win and the width of the widest interval more for one that is compared: rounding is
//          below 2^-48 of that. The margin is 2^-40 of |top| + max |upper| + 64 T.
// Cost:    one pass over the intervals; without a filter 16 random bits for each token, and a word for
//          those that could win; with top_k a selection.
// Threads: any.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infer/sampler.h"

namespace moraine {

struct LogitBounds {
  std::span<const float> lower, upper;  // [V]; finite, or both -inf
};

// Whether find_candidates has an answer.
bool has_candidates(const SamplingOptions& options, int64_t vocab_size);

// Ascending; empty if every token is masked.
std::vector<int32_t> find_candidates(const LogitBounds& logits, const SamplingOptions& options,
                                     int64_t position);

}  // namespace moraine
