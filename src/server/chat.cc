// Chat: the fields of the request.
#include "server/chat.h"

#include <fmt/format.h>

#include "server/chat_format.h"
#include "server/completions_format.h"
#include "server/conversation.h"
#include "server/sampling_fields.h"

namespace moraine {
namespace {

int64_t read_logprobs(JsonFields& fields, const Limits& limits) {
  const bool wanted = fields.boolean("logprobs", false);
  const int64_t top = fields.integer("top_logprobs", 0, 0, limits.top_logprobs);
  if (!wanted && top > 0) fields.fail("top_logprobs", "is only for 'logprobs': true");
  return wanted ? top : -1;
}

int64_t read_max_tokens(JsonFields& fields, std::string* name) {
  *name = fields.has("max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
  fields.find("max_tokens");
  return fields.integer(*name, -1, 1, INT32_MAX);
}

}  // namespace

AnswerPlan plan_chat(const Json& body, const std::shared_ptr<const ServedModel>& model,
                     const Limits& limits) {
  JsonFields fields(body, "");
  check_model(fields, *model);
  AnswerPlan plan;
  plan.n = plan.best_of = fields.integer("n", 1, 1, limits.choices);
  plan.stream = fields.boolean("stream", false);
  Request request;
  read_sampling(fields, *model, limits, &request);
  ChatFormat format{.model = model};
  format.include_usage = read_stream_options(fields, plan.stream);
  format.logprobs = read_logprobs(fields, limits);
  const int64_t top = request.top_logprobs = std::max<int64_t>(format.logprobs, 0);
  std::string max_name;
  const int64_t max_tokens = read_max_tokens(fields, &max_name);
  ConversationRequest conversation;
  conversation.messages = read_messages(fields.need("messages"), "messages", limits);
  conversation.tools = read_tools(fields, limits);
  if (const Json* response_format = fields.object("response_format"))
    conversation.response_format = *response_format;
  if (const Json* variables = fields.object("chat_template_kwargs"))
    conversation.template_variables = *variables;
  conversation.add_generation_prompt = fields.boolean("add_generation_prompt", true);
  if (const Json* effort = fields.find("reasoning_effort"))
    conversation.template_variables["reasoning_effort"] = *effort;
  fields.refuse("functions", "'tools' has taken its place");
  fields.refuse("function_call", "'tool_choice' has taken its place");
  fields.refuse("audio", "this model writes only text");
  fields.refuse("modalities", "this model writes only text", Json::array({"text"}));
  fields.refuse("web_search_options", "nothing is searched");
  fields.refuse("verbosity", "the model knows no such setting", "medium");
  fields.ignore({"user", "metadata", "store", "service_tier", "safety_identifier",
                 "prompt_cache_key", "prompt_cache_retention", "prediction", "skip_special_tokens",
                 "cache_prompt"});
  fields.done();
  PlannedConversation planned = plan_conversation(conversation, *model);
  fill_request(planned, *model, &request);
  format.parser = std::move(planned.parser);
  plan.grammar = std::move(planned.grammar);
  request.max_tokens =
      answer_room(*model, static_cast<int64_t>(request.prompt.size()), max_tokens, max_name);
  plan.prompts.push_back(std::move(request));
  plan.format = chat_format(std::move(format));
  check_logprobs(plan, limits, top > 0 ? "top_logprobs" : "logprobs");
  return plan;
}

}  // namespace moraine
