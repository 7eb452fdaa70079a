// Answer: what the choices of one request have become so far, and a protocol's way to write it.
//
// An AnswerFormat is one protocol's writer, made for one request: as functions, so that a protocol
// keeps its own state. Whole answers call `whole` once; streams call begin, then prompt, delta and
// end_choice for each choice, then end; failed, instead, when something breaks in the middle.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "chat/tool_calls.h"
#include "grammar/grammar.h"
#include "infer/request.h"
#include "server/request_error.h"
#include "server/served_model.h"

namespace moraine {

// One of the n answers to one of the prompts.
struct AnswerChoice {
  int64_t index = 0;         // in the answer
  int64_t prompt_index = 0;  // of the request's prompts
  PromptDone prompt;         // what the engine said of it
  int32_t first_token = -1;  // of the prompt, which has no score
  std::vector<TokenScore>
      tokens;  // if log-probabilities are wanted; a stream: not yet written ones
  int64_t num_tokens = 0;
  double logprob_sum = 0;             // of all tokens
  double last_token_seconds = 0;      // when it came
  std::string text;                   // plain completions
  Reply reply;                        // conversations; in a stream without what was written
  std::vector<std::string> call_ids;  // of the calls that have begun
  bool ended = false;
  Finish finish = Finish::kStop;
  std::string stop;                     // the stop string that ended it; empty: none did
  std::unique_ptr<ReplyParser> parser;  // conversations
};

struct Usage {
  int64_t prompt_tokens = 0;  // each prompt once
  int64_t cached_tokens = 0;  // of those
  int64_t completion_tokens = 0;
};

using Deltas = std::vector<ReplyDelta>;

struct AnswerFormat {
  ErrorShape errors = ErrorShape::kOpenAi;
  std::function<std::unique_ptr<ReplyParser>()> parser = {};  // empty: text is content
  bool logprobs = false;                                      // tokens are kept for it
  std::function<Json(std::vector<AnswerChoice>& choices, const Usage& usage)> whole;

  std::string ping = ": ping\n\n";
  std::function<std::string()> begin;
  std::function<std::string(AnswerChoice& choice)> prompt;  // choice.prompt has arrived
  std::function<std::string(AnswerChoice& choice, const Deltas& deltas)> delta;
  std::function<std::string(AnswerChoice& choice)> end_choice;
  std::function<std::string(const Usage& usage)> end;
  std::function<std::string(const RequestError& error)> failed;
};

// A request as the engine takes it, and how its answer is written.
struct AnswerPlan {
  std::vector<Request> prompts;  // one for each; choices are added
  int64_t n = 1;                 // choices of each prompt in the answer
  int64_t best_of = 1;           // choices of each prompt that are generated, n <= best_of
  bool stream = false;
  std::optional<SharedGrammar> grammar;  // what the answer must be; none: anything
  AnswerFormat format;
};

// "event: name\n" (unless empty) and "data: json\n\n".
std::string sse_event(const std::string& event, const Json& data);

// "length" or "stop", or `calls` if tools were called.
const char* finish_reason(const AnswerChoice& choice, const char* calls = "tool_calls");

// A finite number for JSON: at least -9999.
double json_logprob(double logprob);
// "chatcmpl-" and 24 random letters and digits.
std::string random_id(const std::string& prefix);

}  // namespace moraine
