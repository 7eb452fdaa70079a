// ConversationLine: renders, finds what strangers wrote, encodes.
#include "cli/conversation_line.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"
#include "chat/message_form.h"
#include "tokenizer/encode_marked.h"

namespace moraine {
namespace {

// Two characters for private use, around what a stranger wrote while it is looked for in the rendered text.
constexpr std::string_view kOpen = "\xEE\x80\x80", kClose = "\xEE\x80\x81";

Json parse_line(std::string_view line) {
  Json json;
  try {
    json = parse_json(line, "the line");
  } catch (const Error& e) {
    throw_error(Code::kInvalidArgument, "broken JSON ({}); want one object per line", e.what());
  }
  if (!json.is_object())
    throw_error(Code::kInvalidArgument, "the line is {}; want one object per line",
                json.type_name());
  return json;
}

// Parts of text become one text.
std::string joined_parts(const Json& parts, size_t message) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Json& part = parts[i];
    const Json type = part.is_object() ? part.value("type", Json("text")) : Json();
    const std::string_view member = type.is_string() ? text_member(type.text()) : "";
    if (member.empty() || !part.contains(member) || !part[member].is_string()) {
      throw_error(Code::kInvalidArgument,
                  "part {} of the content of message {} is not text; want {{\"type\": \"text\", "
                  "\"text\": ...}}",
                  i, message);
    }
    text += part[member].text();
  }
  return text;
}

// Members that the server leaves out, or gives another name.
void rename_as_served(Json& message) {
  if (message["role"] == "developer") message["role"] = "system";
  for (const char* name : {"tool_calls", "name", "reasoning_content", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end()) continue;
    if (found->is_null() || *found == "" || *found == Json::array()) message.erase(name);
  }
  if (!message.contains("reasoning")) return;
  if (!message.contains("reasoning_content")) message["reasoning_content"] = message["reasoning"];
  message.erase("reasoning");
}

Json member_of(const Json& json, std::string_view name) {  // null: there is none
  return json.is_object() && json.contains(name) ? json[name] : Json();
}

// The form of server/conversation.h, so that a template writes here what it writes when the model is asked.
void make_as_served(Json& message, size_t index) {
  rename_as_served(message);
  const bool calls = message.contains("tool_calls");
  Json& content = message["content"];  // null if there is none
  if (content.is_null()) {
    if (!calls)
      throw_error(Code::kInvalidArgument, "message {} has no \"content\"{}", index,
                  message["role"] == "assistant" ? " and no \"tool_calls\"" : "");
    content = "";
  }
  if (content.is_array()) content = joined_parts(content, index);
  if (!content.is_string())  // a template would write it, or nothing
    throw_error(
        Code::kInvalidArgument,
        "message {}: content is not text but {}; want a text or a list of parts {{\"type\": "
        "\"text\", \"text\": ...}}",
        index, content.type_name());
  if (!calls || !message["tool_calls"].is_array()) return;
  for (Json& call : message["tool_calls"]) {
    const Json function = member_of(call, "function"), name = member_of(function, "name"),
               id = member_of(call, "id");
    if (!name.is_string() || !(id.is_null() || id.is_string())) continue;  // none that can be asked
    call =
        served_call(id.is_null() ? "" : id.text(), name.text(), member_of(function, "arguments"));
  }
}

Json messages_of(const Json& line, const std::string& field) {
  const auto found = line.find(field);
  if (found == line.end()) {
    std::vector<std::string> names;
    for (const auto& [name, value] : line.items()) names.push_back(name);
    const std::string nearest = nearest_name(field, names);
    throw_error(Code::kInvalidArgument, "the object has no field '{}'{}; choose it with --field",
                field, nearest.empty() ? "" : ", nearest is '" + nearest + "'");
  }
  if (!found->is_array()) {
    throw_error(Code::kInvalidArgument,
                "field '{}' is {}; want a list of {{\"role\", \"content\"}}; for plain text leave "
                "--chat-template and --model out",
                field, found->type_name());
  }
  Json messages = *found;
  for (size_t i = 0; i < messages.size(); ++i) {
    Json& message = messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      throw_error(Code::kInvalidArgument, "message {} of '{}' has no text \"role\"", i, field);
    make_as_served(message, i);
  }
  return messages;
}

// Each text that somebody other than the assistant wrote.
void for_strangers(Json& messages, const std::function<void(std::string& text)>& visit) {
  for (Json& message : messages) {
    if (message["role"] == "assistant") continue;
    if (message["content"].is_string()) visit(message["content"].text());
  }
}

bool holds_special(const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<int32_t> ids = tokenizer.encode(text, /*add_special_tokens=*/false);
  return std::any_of(ids.begin(), ids.end(), [&](int32_t id) { return tokenizer.is_special(id); });
}

// Takes the two characters out of `text`; what stood between them are the ranges.
std::vector<ByteRange> take_marks(std::string* text) {
  std::vector<ByteRange> ranges;
  std::string plain;
  for (size_t at = 0; at < text->size();) {
    const std::string_view rest = std::string_view(*text).substr(at);
    const int64_t here = static_cast<int64_t>(plain.size());
    if (rest.starts_with(kOpen)) {
      ranges.push_back({here, here});
      at += kOpen.size();
    } else if (rest.starts_with(kClose)) {
      if (!ranges.empty()) ranges.back().end = here;
      at += kClose.size();
    } else {
      plain += (*text)[at++];
    }
  }
  *text = plain;
  return ranges;
}

// Where the template puts texts of strangers that hold special tokens. Templates may take white space off a text, so
// the marks stand inside of it; everything else must come out as without them.
std::vector<ByteRange> strangers_in(const ConversationRule& rule, const Conversation& conversation,
                                    const std::string& rendered) {
  Conversation marked = conversation;
  bool any = false;
  for_strangers(marked.messages, [&](std::string& text) {
    if (!holds_special(rule.tokenizer, text)) return;
    constexpr const char* kSpace = " \t\r\n\v\f";
    const size_t begin = text.find_first_not_of(kSpace), end = text.find_last_not_of(kSpace);
    if (begin == std::string::npos) return;
    text.insert(end + 1, kClose);
    text.insert(begin, kOpen);
    any = true;
  });
  if (!any) return {};
  marked.add_generation_prompt = false;
  std::string text =
      rendered.find(kOpen) == std::string::npos && rendered.find(kClose) == std::string::npos
          ? rule.chat.render(marked)
          : "";
  const std::vector<ByteRange> ranges = take_marks(&text);
  if (text != rendered) {
    throw_error(Code::kInvalidArgument,
                "a message holds the text of a special token, and the template does not write "
                "that message as it stands; take the special token out of the message");
  }
  return ranges;
}

}  // namespace

EncodedLine encode_conversation(const ConversationRule& rule, std::string_view line) {
  const Json json = parse_line(line);
  Conversation conversation;
  conversation.messages = messages_of(json, rule.field);
  if (const auto tools = json.find("tools"); tools != json.end() && !tools->is_null()) {
    if (!tools->is_array())
      throw_error(Code::kInvalidArgument, "'tools' is {}; want a list", tools->type_name());
    conversation.tools = *tools;
  }
  const TrainingText training = rule.chat.render_training(conversation);
  std::vector<ByteRange> targets;
  for (const auto& range : training.targets) targets.push_back({range.begin, range.end});
  MarkedTokens tokens = encode_marked(rule.tokenizer, training.text, targets,
                                      strangers_in(rule, conversation, training.text));
  return {.tokens = std::move(tokens.ids),
          .is_target = std::move(tokens.is_target),
          .source_bytes = static_cast<int64_t>(training.text.size())};
}

}  // namespace moraine
