// Responses: POST /v1/responses, the newer protocol of OpenAI, as a translation into a conversation.
//
// Nothing is stored: previous_response_id, conversation and background are refused by name. Unknown fields
// are let pass.
// Errors:  RequestError.
// Threads: the worker.
#pragma once

#include "base/json.h"
#include "server/answer.h"
#include "server/limits.h"

namespace moraine {

AnswerPlan plan_responses(const Json& body, const std::shared_ptr<const ServedModel>& model,
                          const Limits& limits);

}  // namespace moraine
