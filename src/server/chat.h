// Chat: POST /v1/chat/completions.
//
// Errors:  RequestError.
// Threads: the worker.
#pragma once

#include "base/json.h"
#include "server/answer.h"
#include "server/limits.h"

namespace moraine {

AnswerPlan plan_chat(const Json& body, const std::shared_ptr<const ServedModel>& model,
                     const Limits& limits);

}  // namespace moraine
