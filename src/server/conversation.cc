// Conversation: messages as templates want them, and the prompt with its grammar.
#include "server/conversation.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "chat/message_form.h"
#include "grammar/grammar.h"
#include "server/chat_prompt.h"
#include "server/request_error.h"
#include "server/sampling_fields.h"
#include "server/tool_grammar.h"

namespace moraine {
namespace {

// Text, or parts of which all are text, joined.
std::string flat_content(JsonFields& message) {
  const Json* content = message.find("content");
  if (content == nullptr) return "";
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array())
    message.fail("content", fmt::format("is {}; wanted a string or an array of text parts",
                                        kind_of(*content)));
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    JsonFields part((*content)[i], message.place_of(fmt::format("content[{}]", i)));
    const std::string type = part.text("type", "text");
    const std::string member(text_member(type));
    if (member.empty())
      part.fail("type", fmt::format("is \"{}\"; this model reads only text", printable(type, 64)));
    text += part.text(member, "");
  }
  return text;
}

Json read_call(const Json& json, const std::string& place) {
  JsonFields call(json, place);
  call.choice("type", "function", {"function"});
  const Json* function = call.object("function");
  if (function == nullptr) call.fail("function", "is missing");
  JsonFields members(*function, place + ".function");
  const std::string name = members.text("name", "");
  if (name.empty()) members.fail("name", "is missing");
  return served_call(call.text("id", ""), name, members.text("arguments", "{}"));
}

Json read_message(const Json& json, const std::string& place, const Limits& limits) {
  JsonFields fields(json, place);
  fields.need("role");
  std::string role =
      fields.choice("role", "", {"system", "developer", "user", "assistant", "tool"});
  if (role.empty()) fields.fail("role", "is empty");
  if (role == "developer") role = "system";  // the word that templates know
  Json message = {{"role", role}, {"content", flat_content(fields)}};
  if (const std::string name = fields.text("name", ""); !name.empty()) message["name"] = name;
  if (role == "assistant") {
    if (const Json* calls = fields.array("tool_calls", limits.tools)) {
      Json list = Json::array();
      for (size_t i = 0; i < calls->size(); ++i)
        list.push_back(read_call((*calls)[i], fields.place_of(fmt::format("tool_calls[{}]", i))));
      if (!list.empty()) message["tool_calls"] = std::move(list);
    }
    std::string reasoning = fields.text("reasoning_content", "");
    const std::string other = fields.text("reasoning", "");
    if (reasoning.empty()) reasoning = other;
    if (!reasoning.empty()) message["reasoning_content"] = std::move(reasoning);
    fields.refuse("function_call", "'tool_calls' has taken its place");
    fields.refuse("audio", "this model reads only text");
    fields.ignore({"refusal", "annotations"});
  } else {
    if (!fields.has("content")) fields.fail("content", "is missing");
    if (role == "tool") message["tool_call_id"] = fields.text("tool_call_id", "");
  }
  fields.done();
  return message;
}

void check_tool(JsonFields& tool) {
  tool.choice("type", "", {"function"});
  const Json* function = tool.object("function");
  if (function == nullptr) tool.fail("function", "is missing");
  JsonFields members(*function, tool.place_of("function"));
  const std::string name = members.text("name", "");
  if (!is_tool_name(name, 64))
    members.fail("name", "is no name; wanted 1 to 64 letters, digits, underscores, dots or dashes");
  members.text("description", "");
  members.object("parameters");
  members.boolean("strict", false);
  members.done();
}

bool has_tool(const Json& tools, const std::string& name) {
  return std::any_of(tools.begin(), tools.end(),
                     [&](const Json& tool) { return tool["function"]["name"] == name; });
}

void read_choice(JsonFields& fields, ToolUse* use) {
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_string()) {
    use->choice = fields.choice("tool_choice", "", {"none", "auto", "required"});
  } else {
    JsonFields named(*choice, fields.place_of("tool_choice"));
    named.choice("type", "", {"function"});
    const Json* function = named.object("function");
    if (function == nullptr) named.fail("function", "is missing");
    use->choice = "named";
    use->name = JsonFields(*function, named.place_of("function")).text("name", "");
    if (use->tools.is_null() || !has_tool(use->tools, use->name))
      named.fail("function.name",
                 fmt::format("is \"{}\", which 'tools' does not have", printable(use->name, 64)));
  }
  if (use->tools.is_null() && use->choice == "required")
    fields.fail("tool_choice", "is \"required\", and there are no 'tools'");
}

// The schema that response_format asks for.
struct AnswerForm {
  Json schema;
  bool strict = false, any = false;  // any: json_object
};

std::optional<AnswerForm> read_form(const Json& format) {
  if (format.is_null()) return std::nullopt;
  JsonFields fields(format, "response_format");
  const std::string type = fields.choice("type", "", {"text", "json_object", "json_schema"});
  if (type == "text") return std::nullopt;
  if (type == "json_object") return AnswerForm{.schema = {{"type", "object"}}, .any = true};
  if (type.empty()) fields.fail("type", "is missing");
  const Json* wrapper = fields.object("json_schema");
  if (wrapper == nullptr) fields.fail("json_schema", "is missing");
  JsonFields members(*wrapper, "response_format.json_schema");
  const Json* schema = members.find("schema");
  if (schema == nullptr) members.fail("schema", "is missing");
  return AnswerForm{.schema = *schema, .strict = members.boolean("strict", false)};
}

std::optional<SharedGrammar> form_grammar(const std::optional<AnswerForm>& form,
                                          GrammarCache& grammars) {
  if (!form) return std::nullopt;
  try {
    return form->any ? grammars.any_json() : grammars.of_schema(form->schema, form->strict);
  } catch (const Error& e) {
    throw RequestError(e.what(), "response_format.json_schema.schema", "invalid_json_schema");
  }
}

// Calls that must come are held to JSON, which the reader of calls takes in every format; those that may come to the
// format's own form. What XML can not write is left to the model, unless an answer that is no call has a form.
std::optional<SharedGrammar> tools_grammar(const ToolUse& use, ToolFormat format,
                                           const std::optional<AnswerForm>& form,
                                           GrammarCache& grammars) {
  const bool xml = format == ToolFormat::kZaya || format == ToolFormat::kQwenCoder;
  if (xml && !form && use.choice == "auto" && use.parallel && !writes_tags(use, format))
    return std::nullopt;
  try {
    ToolGrammar grammar = tool_grammar(use, format);
    const bool may_answer = use.choice == "auto";  // else calls alone, whatever the form is
    if (form && may_answer) grammar.answer = form->schema, grammar.answer_strict = form->strict;
    return grammars.of_tool_calls(grammar);
  } catch (const RequestError&) {
    throw;
  } catch (const Error& e) {
    throw RequestError(e.what(), "tools", "invalid_function_parameters");
  }
}

}  // namespace

bool is_tool_name(std::string_view name, size_t most) {
  return !name.empty() && name.size() <= most && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  });
}

Json read_messages(const Json& messages, const std::string& place, const Limits& limits) {
  if (!messages.is_array() || messages.empty())
    throw RequestError(fmt::format("'{}' is {}; wanted a non-empty array of messages", place,
                                   messages.is_array() ? "empty" : kind_of(messages)),
                       place);
  if (static_cast<int64_t>(messages.size()) > limits.messages)
    throw RequestError(fmt::format("'{}' has {} elements; at most {} are allowed", place,
                                   messages.size(), limits.messages),
                       place);
  Json list = Json::array();
  for (size_t i = 0; i < messages.size(); ++i)
    list.push_back(read_message(messages[i], fmt::format("{}[{}]", place, i), limits));
  return list;
}

ToolUse read_tools(JsonFields& fields, const Limits& limits) {
  ToolUse use;
  const Json* tools = fields.array("tools", limits.tools);
  if (tools != nullptr && !tools->empty()) {
    for (size_t i = 0; i < tools->size(); ++i) {
      JsonFields tool((*tools)[i], fields.place_of(fmt::format("tools[{}]", i)));
      check_tool(tool);
    }
    use.tools = *tools;
  }
  read_choice(fields, &use);
  use.parallel = fields.boolean("parallel_tool_calls", true);
  return use;
}

PlannedConversation plan_conversation(const ConversationRequest& conversation,
                                      const ServedModel& model) {
  if (model.chat == nullptr) throw RequestError(model.no_chat, "messages", "no_chat_template");
  ToolUse use = conversation.tools;
  if (use.choice == "none") use.tools = nullptr;
  const auto check = [&](const std::string& text) {
    if (!conversation.only_counted) check_text_fits(model, text, "messages");
  };
  ChatPrompt prompt;
  try {
    prompt = chat_prompt(*model.chat,
                         {.messages = conversation.messages,
                          .tools = use.tools,
                          .variables = conversation.template_variables,
                          .add_generation_prompt = conversation.add_generation_prompt},
                         *model.tokenizer, model.special_texts, check);
  } catch (const RequestError&) {
    throw;
  } catch (const Error& e) {
    throw RequestError(e.what(), "messages");
  }
  if (prompt.tokens.empty()) throw RequestError("the template makes no text of this", "messages");
  const std::optional<AnswerForm> form = read_form(conversation.response_format);
  // Compiled also where calls may come: a schema that is none is named here, and not the tools.
  PlannedConversation plan{.prompt = std::move(prompt.tokens),
                           .grammar = form_grammar(form, *model.grammars),
                           .parser = {}};
  const bool calls = !use.tools.is_null();
  if (calls && model.tool_format == ToolFormat::kNone)
    throw RequestError("the model's chat template writes no tool calls", "tools",
                       "tools_not_supported");
  // A grammar begins where the answer does: there is no reasoning before it.
  plan.parser.reasoning = !form;
  if (calls) plan.grammar = tools_grammar(use, model.tool_format, form, *model.grammars);
  plan.parser.format = calls ? model.tool_format : ToolFormat::kNone;
  plan.parser.tools = use.tools;
  const bool is_free = use.choice == "auto" || use.choice == "none";  // of a grammar
  plan.parser.starts_in_reasoning =
      plan.parser.reasoning && prompt_opens_reasoning(prompt.text) && is_free;
  return plan;
}

void fill_request(PlannedConversation& planned, const ServedModel& model, Request* request) {
  request->prompt = std::move(planned.prompt);
  request->special_text = true;  // tags of calls may be special tokens
  if (!model.turn_end.empty()) request->stop.push_back(model.turn_end);
}

}  // namespace moraine
