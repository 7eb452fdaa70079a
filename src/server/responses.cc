// Responses: the fields of the request, as those of a conversation.
#include "server/responses.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "chat/message_form.h"
#include "server/conversation.h"
#include "server/request_error.h"
#include "server/responses_format.h"
#include "server/sampling_fields.h"

namespace moraine {
namespace {

// What f returns. An error of what was translated for it names the field that the request has: `from` is `to` there.
template <class F>
auto with_name(const std::string& from, const std::string& to, const F& f) {
  try {
    return f();
  } catch (const RequestError& e) {
    const size_t at = e.param().find(from);
    if (at == std::string::npos) throw;
    std::string param = e.param(), message = e.what();
    param.replace(at, from.size(), to);
    const size_t quoted = message.find("'" + e.param() + "'");
    if (quoted != std::string::npos) message.replace(quoted + 1, e.param().size(), param);
    throw RequestError(message, param, e.api_code(), e.status(), e.retry_seconds());
  }
}

// Collects calls and reasoning until the message that they belong to is complete.
class ItemReader {
 public:
  explicit ItemReader(Json* out) : out_(out) {}

  void add(const Json& json, const std::string& place) {
    JsonFields item(json, place);
    const std::string type = item.text("type", "message");
    if (type == "message") return add_message(json, item);
    if (type == "function_call") return add_call(item);
    if (type == "function_call_output") return add_output(item);
    if (type == "reasoning") return;  // of an earlier answer: templates leave it out
    if (type == "item_reference")
      item.fail("type", "is \"item_reference\": nothing is stored, so send the item itself");
    item.fail("type", fmt::format("is \"{}\"; wanted message, function_call, function_call_output "
                                  "or reasoning",
                                  printable(type, 64)));
  }
  void flush() {
    if (calls_.empty()) return;
    Json message = {{"role", "assistant"}, {"content", ""}};
    if (!out_->empty() && out_->back()["role"] == "assistant") {
      message = out_->back();
      out_->erase(out_->size() - 1);
    }
    message["tool_calls"] = std::move(calls_);
    calls_ = Json::array();
    out_->push_back(std::move(message));
  }

 private:
  void add_message(const Json& json, JsonFields& item) {
    flush();
    Json message = Json::object();
    for (const char* name : {"role", "content"}) {
      if (json.contains(name)) message[name] = json[name];
    }
    out_->push_back(with_name(".message[0]", "", [&] {
      return read_messages(Json::array({message}), item.place_of("message"), Limits{})[0];
    }));
  }
  void add_call(JsonFields& item) {
    calls_.push_back(
        served_call(item.text("call_id", ""), item.text("name", ""), item.text("arguments", "{}")));
  }
  void add_output(JsonFields& item) {
    flush();
    const Json& output = item.need("output");
    Json message = {{"role", "tool"}, {"content", output}};
    message = with_name(".output[0].content", ".output", [&] {
      return read_messages(Json::array({message}), item.place_of("output"), Limits{})[0];
    });
    message["tool_call_id"] = item.text("call_id", "");
    out_->push_back(std::move(message));
  }

  Json* const out_;
  Json calls_ = Json::array();
};

Json translate_input(JsonFields& fields, const Limits& limits) {
  Json out = Json::array();
  if (const std::string text = fields.text("instructions", ""); !text.empty())
    out.push_back({{"role", "system"}, {"content", text}});
  const Json& input = fields.need("input");
  if (input.is_string()) {
    out.push_back({{"role", "user"}, {"content", input}});
    return out;
  }
  if (!input.is_array())
    fields.fail("input", fmt::format("is {}; wanted a string or an array", kind_of(input)));
  const Json& items = *fields.array("input", limits.messages);
  if (items.empty()) fields.fail("input", "is empty");
  ItemReader reader(&out);
  for (size_t i = 0; i < items.size(); ++i) reader.add(items[i], fmt::format("input[{}]", i));
  reader.flush();
  return out;
}

Json inner_function(const Json& tool) {
  Json function = Json::object();
  for (const char* name : {"name", "description", "parameters", "strict"}) {
    if (tool.contains(name)) function[name] = tool[name];
  }
  return function;
}

// Tools here are flat: {"type": "function", "name", ...}.
ToolUse translate_tools(const Json& body, JsonFields& fields, const Limits& limits) {
  Json inner = Json::object();
  if (const Json* tools = fields.array("tools", limits.tools)) {
    Json list = Json::array();
    for (size_t i = 0; i < tools->size(); ++i) {
      JsonFields tool((*tools)[i], fmt::format("tools[{}]", i));
      const std::string type = tool.text("type", "");
      if (type != "function")
        tool.fail("type", fmt::format("is \"{}\"; this server has no tools of its own, wanted "
                                      "\"function\"",
                                      printable(type, 64)));
      list.push_back({{"type", "function"}, {"function", inner_function((*tools)[i])}});
    }
    inner["tools"] = std::move(list);
  }
  if (const Json* choice = fields.find("tool_choice")) {
    inner["tool_choice"] = *choice;
    if (choice->is_object() && choice->contains("name"))
      inner["tool_choice"] = {{"type", (*choice).value("type", Json("function"))},
                              {"function", {{"name", (*choice)["name"]}}}};
  }
  fields.find("parallel_tool_calls");
  if (body.contains("parallel_tool_calls"))
    inner["parallel_tool_calls"] = body["parallel_tool_calls"];
  JsonFields inner_fields(inner, "");
  return with_name(".function", "", [&] { return read_tools(inner_fields, limits); });
}

// {"format": {"type": "json_schema", "name", "schema"}} as response_format.
Json translate_text(JsonFields& fields) {
  const Json* text = fields.object("text");
  if (text == nullptr) return nullptr;
  JsonFields members(*text, "text");
  const Json* format = members.object("format");
  if (format == nullptr) return nullptr;
  JsonFields inner(*format, "text.format");
  const std::string type = inner.choice("type", "", {"text", "json_object", "json_schema"});
  if (type == "text" || type.empty()) return nullptr;
  Json out = {{"type", type}};
  if (type == "json_schema") out["json_schema"] = *format;
  return out;
}

void refuse_memory(JsonFields& fields) {
  fields.refuse("previous_response_id", "answers are not stored; send the whole conversation");
  fields.refuse("conversation", "conversations are not stored; send all of it");
  fields.refuse("background", "answers are not stored", false);
  fields.refuse("prompt", "prompts are not stored");
  fields.refuse("truncation", "nothing is left out of a conversation", "disabled");
  fields.refuse("max_tool_calls", "this server runs no tools");
}

// What else an answer could hold is of tools and files that are not here, so that it holds all there is of it.
void read_include(JsonFields& fields, const Limits& limits) {
  const char* const why = "is not supported: /v1/chat/completions has log-probabilities";
  if (fields.integer("top_logprobs", 0, 0, limits.top_logprobs) > 0)
    fields.fail("top_logprobs", why);
  const Json* include = fields.array("include", limits.tools);
  for (size_t i = 0; include != nullptr && i < include->size(); ++i) {
    const std::string place = fmt::format("include[{}]", i);
    const Json named = {{place, (*include)[i]}};
    const std::string word = JsonFields(named, "").choice(
        place, "",
        {"reasoning.encrypted_content", "message.output_text.logprobs",
         "message.input_image.image_url", "file_search_call.results", "web_search_call.results",
         "web_search_call.action.sources", "code_interpreter_call.outputs",
         "computer_call_output.output.image_url"});
    if (word == "message.output_text.logprobs") fields.fail(place, why);
  }
}

}  // namespace

AnswerPlan plan_responses(const Json& body, const std::shared_ptr<const ServedModel>& model,
                          const Limits& limits) {
  JsonFields fields(body, "");
  check_model(fields, *model);
  refuse_memory(fields);
  read_include(fields, limits);
  AnswerPlan plan;
  plan.stream = fields.boolean("stream", false);
  Request request;
  read_sampling(fields, *model, limits, &request);
  const int64_t max_tokens = fields.integer("max_output_tokens", -1, 1, INT32_MAX);
  ConversationRequest conversation;
  conversation.messages = translate_input(fields, limits);
  conversation.tools = translate_tools(body, fields, limits);
  conversation.response_format = translate_text(fields);
  if (const Json* reasoning = fields.object("reasoning")) {
    JsonFields members(*reasoning, "reasoning");
    if (const Json* effort = members.find("effort"))
      conversation.template_variables["reasoning_effort"] = *effort;
  }
  ResponsesFormat format{.model = model};
  format.echo = {{"instructions", body.value("instructions", Json(nullptr))},
                 {"max_output_tokens", body.value("max_output_tokens", Json(nullptr))},
                 {"parallel_tool_calls", conversation.tools.parallel},
                 {"temperature", request.sampling.temperature},
                 {"top_p", request.sampling.top_p},
                 {"tool_choice", body.value("tool_choice", Json("auto"))},
                 {"tools", body.value("tools", Json::array())},
                 {"text", body.value("text", Json{{"format", {{"type", "text"}}}})},
                 {"metadata", body.value("metadata", Json::object())}};
  PlannedConversation planned = with_name("messages", "input", [&] {
    return with_name("response_format.json_schema", "text.format",
                     [&] { return plan_conversation(conversation, *model); });
  });
  fill_request(planned, *model, &request);
  format.parser = std::move(planned.parser);
  plan.grammar = std::move(planned.grammar);
  const int64_t tokens = static_cast<int64_t>(request.prompt.size());
  request.max_tokens = answer_room(*model, tokens, max_tokens, "max_output_tokens");
  plan.prompts.push_back(std::move(request));
  plan.format = responses_format(std::move(format));
  return plan;
}

}  // namespace moraine
