// Sequence: one request on its way through the engine.
#pragma once

#include <memory>
#include <vector>

#include "base/hash.h"
#include "infer/request.h"
#include "infer/text_stream.h"

namespace moraine {

struct Sequence {
  Sequence(int64_t number, Request&& what, Listener&& who, const Tokenizer* tokenizer)
      : id(number),
        request(std::move(what)),
        listener(std::move(who)),
        tokens(request.prompt),
        text(tokenizer, request.stop, request.special_text, tokens) {
    if (!request.sampling.penalizes()) return;
    for (const int32_t token : tokens) counts.add_prompt(token);
  }

  const int64_t id;  // rising with arrival
  Request request;
  Listener listener;
  std::vector<int32_t> tokens;  // the prompt, then the answer
  int64_t computed = 0;         // positions whose keys are in the cache
  std::vector<int32_t> pages;   // that hold them
  std::vector<Hash128> keys;    // before each full page, and behind the last
  int64_t known = 0;      // positions that the prefix cache had when it began to wait: an estimate
  int64_t cached = 0;     // positions taken from the prefix cache, when it was first admitted
  bool admitted = false;  // at least once
  bool prompt_done = false;
  std::vector<TokenScore> prompt_scores;
  TokenCounts counts;  // if the request has penalties
  TextStream text;

  // Waits for its first turn, when another's prompt is its own: until then it costs nothing.
  bool waits_for_prompt() const { return request.shares_prompt() && !admitted; }
  int64_t left() const { return static_cast<int64_t>(tokens.size()) - computed; }
  int64_t prompt_tokens() const { return static_cast<int64_t>(request.prompt.size()); }
  int64_t answer_tokens() const { return static_cast<int64_t>(tokens.size()) - prompt_tokens(); }
};

}  // namespace moraine
