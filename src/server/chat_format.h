// ChatFormat: how answers of /v1/chat/completions are written.
#pragma once

#include <memory>

#include "server/answer.h"

namespace moraine {

struct ChatFormat {
  std::shared_ptr<const ServedModel> model;
  int64_t logprobs = -1;  // how many of the most likely; -1: no log-probabilities
  bool include_usage = false;
  ReplyOptions parser{};
};

AnswerFormat chat_format(ChatFormat format);

// What was thought, said and called, as a message of an assistant.
Json assistant_message(const AnswerChoice& choice);

}  // namespace moraine
