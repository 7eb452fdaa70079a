// Generate: continues a prompt with a cache, token by token.
//
// The log-probability of a token is that of softmax(logits) at temperature 1, before any filter: the number
// the trainer and `eval score` compute, to the bit.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "infer/sampler.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace moraine {

struct GenerateRequest {
  std::vector<int32_t> prompt;  // at least one token
  int64_t max_tokens = 128;
  SamplingOptions sampling;
  std::vector<std::string> stop;  // text ends before the first of these; needs a tokenizer
  int32_t eos_id = -1;            // ends the text; -1: nothing does
  // Called with each piece of finished UTF-8 text; may be null.
  std::function<void(const std::string& piece)> on_text;
};

struct GenerateResult {
  std::vector<int32_t> tokens;   // new ones, without the end token
  std::vector<double> logprobs;  // of each
  std::string text;              // "" without a tokenizer
  std::string finish_reason;     // "stop" or "length"
};

// Uses slot 0 of `cache`, which must hold prompt + max_tokens positions (kInvalidArgument). `chunk` rows of
// the prompt at a time, at most the model's tokens.
GenerateResult generate(Context& ctx, Model& model, Cache& cache, const Tokenizer* tokenizer,
                        const GenerateRequest& request, int64_t chunk);

}  // namespace moraine
