// SmallEndpoints: answers that need no engine: models, tokens of a text, text of tokens.
//
// Errors:  RequestError.
// Threads: any; tokenize and detokenize take time with the text and are for the worker.
#pragma once

#include "base/json.h"
#include "server/limits.h"
#include "server/served_model.h"

namespace moraine {

Json models_list(const ServedModel& model);
Json model_object(const ServedModel& model);
// {"bos_token", "eos_token", "chat_template"}, null where there is none.
Json tokenizer_info(const ServedModel& model);
// {"prompt" or "content" or "messages", "add_special_tokens"} -> {"count", "max_model_len", "tokens"}
Json tokenize(const Json& body, const ServedModel& model, const Limits& limits);
// {"tokens"} -> {"prompt", "content"}
Json detokenize(const Json& body, const ServedModel& model, const Limits& limits);

}  // namespace moraine
