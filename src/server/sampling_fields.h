// SamplingFields: the fields that choose tokens, the same in all protocols.
#pragma once

#include "infer/request.h"
#include "server/answer.h"
#include "server/json_fields.h"
#include "server/limits.h"
#include "server/served_model.h"

namespace moraine {

// temperature, top_p, top_k, min_p, seed, presence_penalty, frequency_penalty, repetition_penalty,
// logit_bias, stop, ignore_eos: into `request`. Without a seed a random one is taken.
// Errors: RequestError naming the field and what is allowed.
void read_sampling(JsonFields& fields, const ServedModel& model, const Limits& limits,
                   Request* request);

// How many tokens the answer to `prompt_tokens` may have: `wanted` (-1: all there is room for).
// Errors: RequestError with the code context_length_exceeded, naming `field` ("max_tokens").
int64_t answer_room(const ServedModel& model, int64_t prompt_tokens, int64_t wanted,
                    const std::string& field);

// Before a text is encoded, which takes long for a long one.
// Errors: RequestError with the code context_length_exceeded, naming `field`, if it has more tokens than the context
// whatever they are.
void check_text_fits(const ServedModel& model, const std::string& text, const std::string& field);

// Errors: RequestError naming `field` if the log-probabilities that an answer holds may be too many. A stream holds
// those of the prompt.
void check_logprobs(const AnswerPlan& plan, const Limits& limits, const std::string& field);

// Errors: RequestError if `model` is named and is not the one that is served.
void check_model(JsonFields& fields, const ServedModel& model);

}  // namespace moraine
