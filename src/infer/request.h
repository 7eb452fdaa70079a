// Request: what a caller asks of the engine, and what it is told.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "infer/sampler.h"

namespace moraine {

class TokenFilter;  // infer/token_filter.h

struct Request {
  std::vector<int32_t> prompt;  // at least one token
  int64_t max_tokens = 128;     // new ones at most; 0: only the prompt is computed
  SamplingOptions sampling;
  std::vector<std::string> stop;  // text ends before the first of these; needs a tokenizer
  std::vector<int32_t> end_ids;   // each ends the text and is not part of it
  bool special_text = false;      // special tokens show in the text, as their names
  bool logprobs = true;           // of the answer's tokens; else they are NaN, and cost nothing
  int64_t top_logprobs = 0;  // most likely tokens to tell beside each token: 0 .. kMostTopLogprobs
  bool prompt_logprobs = false;  // of the prompt's tokens too; takes nothing from the prefix cache
  std::string salt;              // prefixes are shared among requests of one salt only
  // A client's request with several prompts or choices is several of these, submitted one behind the other. The first
  // is let in or refused for all of them; the others are let in with it, whatever the queue's limits.
  int64_t others_tokens =
      0;  // of the first: prompt tokens of the others, without those that share a prompt
  bool let_in = false;   // one of the others
  int64_t follows = -1;  // a request with the same prompt to wait for, so that it is computed once
  std::shared_ptr<TokenFilter> filter;  // which tokens may come; null: all

  // Its prompt is found in the prefix cache when its turn comes, so that it costs nothing before.
  bool shares_prompt() const { return follows >= 0 && !prompt_logprobs; }
};

inline constexpr int64_t kMostTopLogprobs = 20;

// Of softmax(logits) at temperature 1, before penalties, biases, filters: the trainer's and `eval score`'s
// number, to the bit.
struct TokenLogprob {
  int32_t token = -1;
  double logprob = 0;
};

struct TokenScore {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // by falling probability
};

struct PromptDone {
  int64_t cached_tokens = 0;       // positions that were not computed again
  std::vector<TokenScore> scores;  // of each token behind the first, if asked for
};

struct TokenPiece {
  TokenScore score;
  std::string text;  // finished characters that can be shown now; may be empty
};

enum class Finish { kStop, kLength, kCancelled, kError };
const char* finish_name(Finish finish);  // "stop", "length", "cancelled", "error"

struct Ended {
  Finish finish = Finish::kStop;
  std::string text{};   // characters that were held back as the possible beginning of a stop string
  std::string error{};  // what went wrong, of kError
  std::string stop{};   // the stop string that ended the text; empty: none did
};

// Called on the thread that runs the engine; any may be empty. After on_finish nothing more is called.
struct Listener {
  std::function<void(const PromptDone&)> on_prompt;  // once
  std::function<void(const TokenPiece&)> on_token;   // not for a token that ends the text
  std::function<void(const Ended&)> on_finish;
};

}  // namespace moraine
