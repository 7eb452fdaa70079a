// CompletionsFormat: how answers of /v1/completions are written.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/answer.h"
#include "server/json_fields.h"

namespace moraine {

struct CompletionsFormat {
  std::shared_ptr<const ServedModel> model;
  bool echo = false;
  int64_t logprobs = -1;  // how many of the most likely; -1: no log-probabilities
  bool include_usage = false;
  std::vector<std::string> prompt_texts{};
};

AnswerFormat completions_format(CompletionsFormat format);

// {"stream_options": {"include_usage": true}}. Errors: RequestError, also without `stream`.
bool read_stream_options(JsonFields& fields, bool stream);

// {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details": {"cached_tokens"}}
Json usage_json(const Usage& usage);

}  // namespace moraine
