// Small endpoints: their fields and answers.
#include "server/small_endpoints.h"

#include <fmt/format.h>

#include "base/utf8.h"
#include "server/conversation.h"
#include "server/json_fields.h"
#include "server/sampling_fields.h"

namespace moraine {

Json model_object(const ServedModel& model) {
  return {{"id", model.id},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "moraine"},
          {"max_model_len", model.context},
          {"chat", model.chat != nullptr},
          {"system_fingerprint", model.fingerprint}};
}

Json models_list(const ServedModel& model) {
  return {{"object", "list"}, {"data", Json::array({model_object(model)})}};
}

Json tokenizer_info(const ServedModel& model) {
  const auto text = [&](int32_t id) {
    return id < 0 ? Json(nullptr) : Json(std::string(model.tokenizer->token_text(id)));
  };
  return {{"bos_token", text(model.tokenizer->bos_id())},
          {"eos_token", text(model.tokenizer->eos_id())},
          {"chat_template", model.chat == nullptr ? Json(nullptr) : Json(model.chat->source())}};
}

Json tokenize(const Json& body, const ServedModel& model, const Limits& limits) {
  JsonFields fields(body, "");
  check_model(fields, model);
  const int given = fields.has("prompt") + fields.has("content") + fields.has("messages");
  if (given != 1)
    fields.fail("prompt", "wanted one of 'prompt' and 'content', a string, and 'messages'");
  const std::string text = fields.text("prompt", "") + fields.text("content", "");
  const bool add = fields.boolean("add_special_tokens", true);
  const bool parse = fields.boolean("parse_special_tokens", true);
  const bool texts = fields.boolean("return_token_strs", false);
  fields.done();
  std::vector<int32_t> ids;
  if (const Json* messages = fields.find("messages")) {
    ConversationRequest conversation{.messages = read_messages(*messages, "messages", limits)};
    conversation.only_counted = true;
    ids = plan_conversation(conversation, model).prompt;
  } else {
    ids = parse ? model.tokenizer->encode(text, add) : model.tokenizer->encode_ordinary(text, add);
  }
  Json answer = {{"count", ids.size()}, {"max_model_len", model.context}, {"tokens", ids}};
  if (texts) {
    Json list = Json::array();
    for (int32_t id : ids) list.push_back(std::string(model.tokenizer->token_text(id)));
    answer["token_strs"] = std::move(list);
  }
  return answer;
}

Json detokenize(const Json& body, const ServedModel& model, const Limits& limits) {
  JsonFields fields(body, "");
  check_model(fields, model);
  const Json* tokens = fields.array("tokens", limits.json_values);
  if (tokens == nullptr) fields.fail("tokens", "is missing; wanted an array of token ids");
  fields.done();
  const int64_t vocabulary = model.tokenizer->vocabulary_size();
  std::vector<int32_t> ids;
  for (const Json& id : *tokens) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= vocabulary)
      fields.fail(fmt::format("tokens[{}]", ids.size()),
                  fmt::format("is no token id; wanted an integer from 0 to {}", vocabulary - 1));
    ids.push_back(id.get<int32_t>());
  }
  const std::string text = to_valid_utf8(model.tokenizer->decode(ids, /*skip_special=*/false));
  return {{"prompt", text}, {"content", text}};
}

}  // namespace moraine
