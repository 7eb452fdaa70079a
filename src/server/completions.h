// Completions: POST /v1/completions, text that goes on.
//
// A prompt is a string, an array of strings, of token ids, or of arrays of token ids. In a string, the
// texts of special tokens are those tokens, and what the tokenizer puts around a text (<bos>) is put there,
// as other servers do; "add_special_tokens": false and "parse_special_tokens": false turn that off.
// Errors: RequestError.
// Threads: the worker.
#pragma once

#include "base/json.h"
#include "server/answer.h"
#include "server/limits.h"

namespace moraine {

AnswerPlan plan_completions(const Json& body, const std::shared_ptr<const ServedModel>& model,
                            const Limits& limits);

}  // namespace moraine
