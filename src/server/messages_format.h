// MessagesFormat: how answers of /v1/messages are written.
#pragma once

#include <memory>

#include "server/answer.h"

namespace moraine {

struct MessagesFormat {
  std::shared_ptr<const ServedModel> model;
  int64_t prompt_tokens = 0;
  ReplyOptions parser{};
  std::vector<std::string> stops{};  // that the request named
};

AnswerFormat messages_format(MessagesFormat format);

}  // namespace moraine
