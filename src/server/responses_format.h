// ResponsesFormat: how answers of /v1/responses are written.
#pragma once

#include <memory>

#include "server/answer.h"

namespace moraine {

struct ResponsesFormat {
  std::shared_ptr<const ServedModel> model;
  Json echo = Json::object();  // fields of the request that its answer repeats
  ReplyOptions parser{};
};

AnswerFormat responses_format(ResponsesFormat format);

}  // namespace moraine
