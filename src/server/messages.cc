// Messages: the fields of the request, as those of a conversation.
#include "server/messages.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "server/conversation.h"
#include "server/messages_format.h"
#include "server/sampling_fields.h"

namespace moraine {
namespace {

// A string, or blocks that are all text.
std::string text_of(const Json& content, const std::string& place) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array())
    throw RequestError(fmt::format("'{}' is {}; wanted a string or an array of text blocks", place,
                                   kind_of(content)),
                       place);
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    JsonFields block(content[i], fmt::format("{}[{}]", place, i));
    const std::string type = block.text("type", "");
    if (type != "text")
      block.fail("type", fmt::format("is \"{}\"; this model reads only text", printable(type, 64)));
    text += block.text("text", "");
  }
  return text;
}

// The blocks of one message as messages of a conversation: results of tools come first.
class BlockReader {
 public:
  BlockReader(const std::string& role, Json* out) : role_(role), out_(out) {}

  void read(const Json& content, const std::string& place, const Limits& limits) {
    if (content.is_array() && static_cast<int64_t>(content.size()) > limits.messages)
      throw RequestError(fmt::format("'{}' has more than {} blocks", place, limits.messages),
                         place);
    if (!content.is_array()) {
      text_ = text_of(content, place);
    } else {
      for (size_t i = 0; i < content.size(); ++i) add(content[i], fmt::format("{}[{}]", place, i));
    }
    Json message = {{"role", role_}, {"content", text_}};
    if (!calls_.empty()) message["tool_calls"] = std::move(calls_);
    if (!reasoning_.empty()) message["reasoning_content"] = std::move(reasoning_);
    const bool only_results = results_ > 0 && text_.empty();
    if (!only_results) out_->push_back(std::move(message));
  }

 private:
  void add(const Json& json, const std::string& place) {
    JsonFields block(json, place);
    const std::string type = block.text("type", "");
    if (type == "text") {
      text_ += block.text("text", "");
    } else if (type == "tool_use" && role_ == "assistant") {
      const Json* input = block.object("input");
      calls_.push_back({{"id", block.text("id", "")},
                        {"type", "function"},
                        {"function",
                         {{"name", block.text("name", "")},
                          {"arguments", input == nullptr ? Json::object() : *input}}}});
    } else if (type == "tool_result" && role_ == "user") {
      const Json* content = block.find("content");
      out_->push_back(
          {{"role", "tool"},
           {"content", content == nullptr ? "" : text_of(*content, block.place_of("content"))},
           {"tool_call_id", block.text("tool_use_id", "")}});
      ++results_;
    } else if (type == "thinking" && role_ == "assistant") {
      reasoning_ += block.text("thinking", "");
    } else if (type != "redacted_thinking") {
      block.fail("type", fmt::format("is \"{}\", which a message of the role \"{}\" can not have "
                                     "here; this model reads only text",
                                     printable(type, 64), role_));
    }
  }

  const std::string role_;
  Json* const out_;
  std::string text_, reasoning_;
  Json calls_ = Json::array();
  int64_t results_ = 0;
};

Json translate_messages(JsonFields& fields, const Limits& limits) {
  Json out = Json::array();
  if (const Json* system = fields.find("system"))
    out.push_back({{"role", "system"}, {"content", text_of(*system, "system")}});
  fields.need("messages");
  const Json& messages = *fields.array("messages", limits.messages);
  if (messages.empty()) fields.fail("messages", "is empty");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string place = fmt::format("messages[{}]", i);
    JsonFields message(messages[i], place);
    message.need("role");
    const std::string role = message.choice("role", "", {"user", "assistant", "system"});
    if (role.empty()) message.fail("role", "is empty");
    BlockReader(role, &out).read(message.need("content"), place + ".content", limits);
  }
  return out;
}

ToolUse translate_tools(JsonFields& fields, const Limits& limits) {
  ToolUse use;
  if (const Json* tools = fields.array("tools", limits.tools);
      tools != nullptr && !tools->empty()) {
    use.tools = Json::array();
    for (size_t i = 0; i < tools->size(); ++i) {
      JsonFields tool((*tools)[i], fmt::format("tools[{}]", i));
      const std::string type = tool.text("type", "custom");
      if (type != "custom")
        tool.fail("type", fmt::format("is \"{}\"; this server runs no tools of its own",
                                      printable(type, 64)));
      Json function = {{"name", tool.text("name", "")}};
      if (!is_tool_name(function["name"].text(), 128))
        tool.fail("name",
                  "is no name; wanted 1 to 128 letters, digits, underscores, dots or dashes");
      if (tool.has("description")) function["description"] = tool.text("description", "");
      if (const Json* schema = tool.object("input_schema")) function["parameters"] = *schema;
      use.tools.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  }
  const Json* choice = fields.object("tool_choice");
  if (choice == nullptr) return use;
  JsonFields members(*choice, "tool_choice");
  const std::string type = members.choice("type", "", {"auto", "any", "tool", "none"});
  use.choice = type == "any" ? "required" : type == "tool" ? "named" : type.empty() ? "auto" : type;
  use.name = members.text("name", "");
  use.parallel = !members.boolean("disable_parallel_tool_use", false);
  const bool wants = use.choice == "required" || use.choice == "named";
  if (wants && use.tools.is_null()) fields.fail("tool_choice", "asks for a tool; there are none");
  if (use.choice != "named") return use;
  for (const Json& tool : use.tools) {
    if (tool["function"]["name"] == use.name) return use;
  }
  members.fail("name",
               fmt::format("is \"{}\", which 'tools' does not have", printable(use.name, 64)));
}

ConversationRequest read_conversation(JsonFields& fields, const ServedModel& model,
                                      const Limits& limits) {
  check_model(fields, model);
  ConversationRequest conversation;
  conversation.messages = translate_messages(fields, limits);
  conversation.tools = translate_tools(fields, limits);
  if (const Json* thinking = fields.object("thinking")) {
    JsonFields members(*thinking, "thinking");
    conversation.template_variables["enable_thinking"] =
        members.text("type", "disabled") != "disabled";
  }
  fields.refuse("mcp_servers", "this server calls no others", Json::array());
  fields.refuse("container", "this server runs no tools of its own");
  return conversation;
}

}  // namespace

AnswerPlan plan_messages(const Json& body, const std::shared_ptr<const ServedModel>& model,
                         const Limits& limits) {
  JsonFields fields(body, "");
  AnswerPlan plan;
  plan.stream = fields.boolean("stream", false);
  MessagesFormat format{.model = model};
  Request request;
  Json sampling = Json::object();  // under the names that all protocols share
  for (const char* name : {"temperature", "top_p", "top_k"}) {
    if (const Json* value = fields.find(name)) sampling[name] = *value;
  }
  JsonFields shared(sampling, "");
  read_sampling(shared, *model, limits, &request);
  request.stop = fields.texts("stop_sequences", limits.stops);
  for (const std::string& stop : request.stop) {
    if (stop.empty() || static_cast<int64_t>(stop.size()) > limits.stop_bytes)
      fields.fail("stop_sequences", fmt::format("has one of {} bytes; wanted 1 to {}", stop.size(),
                                                limits.stop_bytes));
  }
  fields.need("max_tokens");
  const int64_t max_tokens = fields.integer("max_tokens", 1, 1, INT32_MAX);
  PlannedConversation planned =
      plan_conversation(read_conversation(fields, *model, limits), *model);
  format.stops = request.stop;
  fill_request(planned, *model, &request);
  format.parser = std::move(planned.parser);
  plan.grammar = std::move(planned.grammar);
  const int64_t tokens = static_cast<int64_t>(request.prompt.size());
  // Clients of this protocol send the largest number that their model takes: what fits is meant.
  request.max_tokens = std::min(answer_room(*model, tokens, -1, "max_tokens"), max_tokens);
  format.prompt_tokens = tokens;
  plan.prompts.push_back(std::move(request));
  plan.format = messages_format(std::move(format));
  return plan;
}

Json count_message_tokens(const Json& body, const ServedModel& model, const Limits& limits) {
  JsonFields fields(body, "");
  ConversationRequest conversation = read_conversation(fields, model, limits);
  conversation.only_counted = true;
  const PlannedConversation planned = plan_conversation(conversation, model);
  return {{"input_tokens", planned.prompt.size()}};
}

}  // namespace moraine
