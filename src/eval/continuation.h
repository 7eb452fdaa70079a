// Continuation: the tokens of a text that follows another, and what a model gives for them.
//
// Tokens are those of lm-evaluation-harness: white space at the end of the context moves to the continuation; context
// and continuation are encoded as one text, then the context alone; the tokens of the whole past the number of the
// context's are the continuation's. A context without tokens is replaced by the token that begins a text (else the one
// that ends it).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/text_begin.h"
#include "eval/window_batch.h"

namespace moraine {

struct Continuation {
  std::vector<int32_t> ids;    // context, then continuation
  int64_t context_tokens = 0;  // >= 1
  int64_t tokens_cut = 0;  // from the left of the context, because all were more than tokens_max
};

struct EncodeRule {
  const Tokenizer* tokenizer = nullptr;
  TextBegin begin;
  int64_t tokens_max = 0;  // of context and continuation together; the context loses its first ones
};

// `where` is for messages. Errors: kInvalidArgument: the continuation adds no token to the context, or has tokens_max
// tokens or more; an empty context, and no token begins or ends a text.
Continuation encode_continuation(const EncodeRule& rule, std::string_view context,
                                 std::string_view continuation, const std::string& where);

// Log-probability of each continuation given its context: the sum over its tokens, in their order. No bit of it depends
// on the others. The model has rows for the longest. `progress` is called after each forward pass.
std::vector<double> score_continuations(
    const EvalModel& model, std::span<const Continuation> continuations,
    const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace moraine
