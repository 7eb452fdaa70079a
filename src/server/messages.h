// Messages: POST /v1/messages, the protocol of Anthropic, as a translation into a conversation.
//
// Unknown fields are let pass, as clients of this protocol send new ones all the time; those that would
// change the answer are refused by name.
// Errors:  RequestError.
// Threads: the worker.
#pragma once

#include "base/json.h"
#include "server/answer.h"
#include "server/limits.h"

namespace moraine {

AnswerPlan plan_messages(const Json& body, const std::shared_ptr<const ServedModel>& model,
                         const Limits& limits);
// {"input_tokens": n} for the same body.
Json count_message_tokens(const Json& body, const ServedModel& model, const Limits& limits);

}  // namespace moraine
