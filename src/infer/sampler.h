// Sampler: picks the next token from logits, as a function of (seed, choice, position).
//
//   A logit that is NaN counts as the least likely; of a token that has one, the engine says so and draws no more.
//   adjusted logit of id, in this order:
//     repetition_penalty r   logit > 0 ? logit / r : logit * r    for ids of the prompt or the answer
//     frequency_penalty f    - f * (times in the answer)
//     presence_penalty p     - p, for ids of the answer
//     logit_bias             + its bias
//     mask                   ids outside: never
//   temperature 0: arg-max, the lower id on a tie. Else Gumbel-max: arg-max of logit/temperature + gumbel(u),
//   u a function of (seed, position, id) (infer/gumbel.h), over the ids that survive, in this order:
//     top_k  the k most likely (0: all)
//     top_p  the smallest set of most likely ids whose probabilities reach p (1: all)
//     min_p  ids at least min_p times as likely as the most likely (0: all)
//   Probabilities are of softmax(adjusted / temperature). Choice i > 0 of a request with one seed draws with the
//   seed random_bits(seed, kChoice, 0, i): choices differ, and each is what it is in any company.
// Cost: V log V only if top_p or top_k filter; else one draw for each id that could win.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace moraine {

struct SamplingOptions {
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  uint64_t seed = 0;
  int64_t choice = 0;
  double repetition_penalty = 1;  // 1: none
  double presence_penalty = 0;    // 0: none
  double frequency_penalty = 0;   // 0: none
  std::vector<std::pair<int32_t, double>> logit_bias = {};

  // Whether it matters which tokens stand in the prompt and in the answer so far.
  bool penalizes() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
  bool adjusts() const { return penalizes() || !logit_bias.empty(); }
};

// Errors: kInvalidArgument names the option and what is allowed.
void check_sampling(const SamplingOptions& options, int64_t vocab_size);

// How often tokens stand in a prompt and its answer: what penalties are about.
class TokenCounts {
 public:
  void add_prompt(int32_t token) { count_[token]; }
  void add_answer(int32_t token) { ++count_[token]; }
  const std::map<int32_t, int64_t>& of_answer() const { return count_; }  // 0: of the prompt alone

 private:
  std::map<int32_t, int64_t> count_;
};

// Changes logits as penalties and biases say. A higher logit never becomes the lower one.
void adjust_logits(std::span<float> logits, const SamplingOptions& options,
                   const TokenCounts& counts);

// Logits outside the mask (bit i of [ceil(V / 64)] words: id i) become -inf.
void mask_logits(std::span<float> logits, std::span<const uint64_t> mask);

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     int64_t position);

// What sample_token gives where every other logit is so low that it changes nothing (infer/candidates.h). `ids` are
// ascending, at least one; other logits are not read.
int32_t sample_among(std::span<const int32_t> ids, std::span<const float> logits,
                     const SamplingOptions& options, int64_t position);

}  // namespace moraine
