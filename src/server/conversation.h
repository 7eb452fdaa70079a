// Conversation: a chat request, whatever the protocol that carried it, as an AnswerPlan without a format.
//
//   messages   roles system, developer (as system), user, assistant, tool; content as text or text parts
//   prompt     the model's template, as tokens; special tokens are what the template writes: the same text
//              inside a message, a tool or a role is ordinary text
//   grammar    of response_format, or of the tools that may be called
//
// Errors:  RequestError naming the field.
// Threads: the worker.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/answer.h"
#include "server/json_fields.h"
#include "server/limits.h"

namespace moraine {

// What decides about tools, in OpenAI's words.
struct ToolUse {
  Json tools = nullptr;         // [{"type": "function", "function": {...}}]; null: none
  std::string choice = "auto";  // "none", "auto", "required", or "named"
  std::string name = {};        // "named"
  bool parallel = true;
};

// What decides about the form of the answer: {"type": "json_schema", ...} and the like; null: text.
struct ConversationRequest {
  Json messages = Json::array();  // checked and flattened (read_messages)
  ToolUse tools = {};
  Json response_format = nullptr;
  Json template_variables = Json::object();
  bool add_generation_prompt = true;
  bool only_counted = false;  // its prompt may be longer than the context
};

// Fields of /v1/chat/completions; the other protocols translate theirs into these.
Json read_messages(const Json& messages, const std::string& place, const Limits& limits);
ToolUse read_tools(JsonFields& fields, const Limits& limits);
// Letters, digits, underscores, dots and dashes, at most `most` of them: what every template and every format of calls
// can write.
bool is_tool_name(std::string_view name, size_t most);

struct PlannedConversation {
  std::vector<int32_t> prompt;
  std::optional<SharedGrammar> grammar;  // what the answer must be; none: anything
  ReplyOptions parser;                   // cuts the generated text
};
PlannedConversation plan_conversation(const ConversationRequest& conversation,
                                      const ServedModel& model);
// What the engine computes for it: the prompt is moved out, and the answer ends where the assistant's turn does.
void fill_request(PlannedConversation& planned, const ServedModel& model, Request* request);

}  // namespace moraine
