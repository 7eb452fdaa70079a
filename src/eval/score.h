// Score: log-probabilities of given tokens; loss and bits per byte of a text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/model.h"

namespace moraine {

// logprob[i] = log p(ids[i] | ids[0..i)), i >= 1; logprob[0] is NaN (nothing before it). One document.
// Errors: kInvalidArgument for ids outside the vocabulary or more than the model's rows.
std::vector<double> score_tokens(Context& ctx, Model& model, std::span<const int32_t> ids);

struct Perplexity {
  int64_t tokens = 0;  // scored
  int64_t bytes = 0;   // of the text
  double nll = 0;      // nats, in all
  double loss() const { return tokens == 0 ? 0 : nll / static_cast<double>(tokens); }
  double bits_per_byte() const;
  double perplexity() const;
};

struct PerplexityOptions {
  int64_t context = 512;  // positions of a window
  int64_t stride = 256;   // new positions of each window after the first: 1 .. context
  std::function<void(int64_t done, int64_t total)> progress;
};

// Slides a window over the document: each token is scored once, with at least context - stride tokens before
// it where there are so many. The very first token is charged log V nats: nothing predicts it.
// The sum runs over windows in order; a window's bits do not depend on how many are computed at once.
Perplexity document_perplexity(Context& ctx, Model& model, std::span<const int32_t> ids,
                               int64_t bytes, const PerplexityOptions& options);

}  // namespace moraine
