// Generate: one request, computed to its end on the calling thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "infer/request.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace moraine {

struct GenerateResult {
  std::vector<int32_t> tokens;   // new ones, without the end token
  std::vector<double> logprobs;  // of each
  std::string text;              // "" without a tokenizer
  std::string finish_reason;     // "stop" or "length"
};

struct GenerateWith {
  Context& ctx;
  Model& model;
  Cache& cache;  // is used whole: holds prompt + max_tokens positions
  const Tokenizer* tokenizer;
  Communicator* ranks = nullptr;  // that follow (infer/rank_steps.h)
};

// The prompt goes in chunks of as many rows as the model takes. on_text gets each piece of finished text, without a
// tokenizer the tokens' numbers with spaces between them; may be empty.
// Errors: those of Engine::submit; kInvalidArgument if the engine could not go on.
GenerateResult generate(const GenerateWith& with, const Request& request,
                        const std::function<void(const std::string&)>& on_text = {});

}  // namespace moraine
