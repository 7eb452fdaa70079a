// Finds the template of a model, gives it what Hugging Face gives, and tells an assistant's words in the text.
#include "chat/chat_template.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "chat/built_in_templates.h"
#include "chat/jinja/template.h"

namespace moraine {

struct ChatTemplateParts {
  Json tokens;  // bos_token and the like
  std::unique_ptr<jinja::Template> main;
  std::unique_ptr<jinja::Template> with_tools;  // null: main also then
  std::string end_of_turn;
};

namespace {

using Range = std::pair<int64_t, int64_t>;

bool is_python_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

int64_t without_space(const std::string& text, int64_t begin, int64_t end) {
  while (end > begin && is_python_space(text[end - 1])) --end;
  return end;
}

Json read_json(FileSystem& fs, const std::string& path) {
  return fs.exists(path) ? parse_json(fs.read(path), path) : Json::object();
}

// Every member that ends in "_token": its text, or the "content" of it.
void add_tokens(const Json& file, Json* tokens) {
  if (!file.is_object()) return;
  for (const auto& [key, value] : file.items()) {
    if (!key.ends_with("_token")) continue;
    if (value.is_string()) (*tokens)[key] = value;
    if (value.is_object() && value.contains("content") && value["content"].is_string()) {
      (*tokens)[key] = value["content"];
    }
  }
}

Json tokens_of(FileSystem& fs, const std::string& folder, const Json& config,
               const Tokenizer& tokenizer) {
  Json tokens = Json::object();
  if (tokenizer.bos_id() >= 0) tokens["bos_token"] = tokenizer.token_text(tokenizer.bos_id());
  if (tokenizer.eos_id() >= 0) tokens["eos_token"] = tokenizer.token_text(tokenizer.eos_id());
  add_tokens(read_json(fs, join_path(folder, "special_tokens_map.json")), &tokens);
  add_tokens(config, &tokens);
  return tokens;
}

std::unique_ptr<jinja::Template> parsed(const std::string& source, const std::string& name) {
  return std::make_unique<jinja::Template>(source, name);
}

// "chat_template" of a tokenizer_config.json.
void add_templates(const Json& value, const std::string& name, ChatTemplateParts* parts) {
  if (value.is_string()) {
    parts->main = parsed(value.get<std::string>(), name);
    return;
  }
  if (!value.is_array()) {
    throw_error(Code::kCorrupt, "read {}: 'chat_template' is neither a text nor a list", name);
  }
  std::string names;
  for (const Json& item : value) {
    const auto text = [&](const char* key) {
      if (!item.is_object() || !item.contains(key) || !item[key].is_string()) {
        throw_error(Code::kCorrupt, "read {}: an element of 'chat_template' has no text '{}'", name,
                    key);
      }
      return item[key].get<std::string>();
    };
    const std::string which = text("name");
    names += (names.empty() ? "" : ", ") + which;
    if (which == "default") parts->main = parsed(text("template"), name + " (default)");
    if (which == "tool_use") parts->with_tools = parsed(text("template"), name + " (tool_use)");
  }
  if (parts->main == nullptr) {
    throw_error(Code::kInvalidArgument,
                "{}: 'chat_template' has no template 'default'; it has: {}; write the one you want "
                "to a file and give it with --chat-template FILE",
                name, names);
  }
}

bool has_tools(const Conversation& c) { return c.tools.is_array() && !c.tools.empty(); }

jinja::Template::Tracked run(const ChatTemplateParts& parts, const Conversation& c,
                             const Json& messages, bool prompt, bool track) {
  const bool tools = has_tools(c);
  Json given = Json::object();
  given["tools"] = tools ? c.tools : Json(nullptr);
  given["documents"] = nullptr;
  given["add_generation_prompt"] = prompt;
  // Messages are looked at where they are: a prefix of them is copied by the caller only.
  Json list = Json::object();
  list["messages"] = messages;
  if (!messages.is_array()) {
    throw_error(Code::kInvalidArgument, "chat template {}: messages are no list",
                parts.main->name());
  }
  if (!c.variables.is_object()) {
    throw_error(Code::kInvalidArgument, "chat template {}: variables are no object",
                parts.main->name());
  }
  const jinja::Template& t = tools && parts.with_tools ? *parts.with_tools : *parts.main;
  const std::vector<const Json*> variables = {&given, &parts.tokens, &c.variables, &list};
  if (track) return t.render_tracked(variables);
  return {t.render(variables), {}};
}

// What the template writes behind an answer, found by an answer that no template holds. A template that takes
// a user and an assistant in turn, without a system message, is all that this needs; others have none.
std::string find_end_of_turn(const ChatTemplateParts& parts) {
  const std::string mark = "moraine0answer";
  Conversation c;
  c.messages = Json::array({{{"role", "user"}, {"content", "q"}},
                            {{"role", "assistant"}, {"content", mark}},
                            {{"role", "user"}, {"content", "moraine0question"}}});
  try {
    const std::string text = run(parts, c, c.messages, false, false).text;
    const Json two = Json::array({c.messages[0], c.messages[1]});
    const std::string shorter = run(parts, c, two, false, false).text;
    const size_t begin = shorter.rfind(mark);
    if (begin == std::string::npos || text.find(mark) == std::string::npos) return "";
    const std::string tail = shorter.substr(begin + mark.size());
    return tail.substr(0, without_space(tail, 0, static_cast<int64_t>(tail.size())));
  } catch (const Error&) {
    return "";
  }
}

[[noreturn]] void fail_prefix(const ChatTemplateParts& parts, size_t message, const char* what) {
  throw_error(Code::kInvalidArgument,
              "chat template {}: {} message {}, so what the assistant said can not be told; put "
              "{{% generation %}} around it in the template, or train on conversations that end "
              "with their only answer, or choose --chat-template chatml",
              parts.main->name(), what, message);
}

bool begins_with(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

// The bytes that message `index` adds to what a prompt for it ends with.
Range range_of(const ChatTemplateParts& parts, const Conversation& c, size_t index,
               const std::string& whole) {
  Json before = Json::array(), with = Json::array();
  for (size_t i = 0; i < index; ++i) before.push_back(c.messages[i]);
  with = before;
  with.push_back(c.messages[index]);
  const std::string prompt = run(parts, c, before, true, false).text;
  const std::string turn = run(parts, c, with, false, false).text;
  if (!begins_with(turn, prompt)) {
    fail_prefix(parts, index, "the prompt for an answer is not how it writes the answer,");
  }
  const int64_t begin = static_cast<int64_t>(prompt.size());
  int64_t end = without_space(turn, begin, static_cast<int64_t>(turn.size()));
  // Where nothing but white space ends a turn, that is its end.
  if (parts.end_of_turn.empty()) end = static_cast<int64_t>(turn.size());
  if (!begins_with(whole, turn.substr(0, end))) {
    fail_prefix(parts, index, "it writes earlier turns otherwise once there are later ones,");
  }
  return {begin, end};
}

bool is_assistant(const Json& message) {
  return message.is_object() && message.contains("role") && message["role"] == "assistant";
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<ChatTemplateParts> parts) : parts_(std::move(parts)) {
  parts_->end_of_turn = find_end_of_turn(*parts_);
}

ChatTemplate::~ChatTemplate() = default;

std::unique_ptr<ChatTemplate> ChatTemplate::load(FileSystem& fs, const std::string& model_folder,
                                                 const std::string& choice,
                                                 const Tokenizer& tokenizer) {
  const std::string config_path = join_path(model_folder, "tokenizer_config.json");
  const Json config = read_json(fs, config_path);
  auto parts = std::make_unique<ChatTemplateParts>();
  parts->tokens = tokens_of(fs, model_folder, config, tokenizer);
  const std::string own = join_path(model_folder, "chat_template.jinja");
  if (const std::string_view text = built_in_template(choice); !text.empty()) {
    parts->main = parsed(std::string(text), choice);
    if (choice == "chatml" &&
        (tokenizer.id_of("<|im_start|>") < 0 || tokenizer.id_of("<|im_end|>") < 0)) {
      throw_error(Code::kInvalidArgument,
                  "chat template chatml: the tokenizer of {} has no tokens <|im_start|> and "
                  "<|im_end|>; --chat-template plain needs none",
                  model_folder);
    }
  } else if (!choice.empty()) {
    if (!fs.exists(choice)) {
      throw_error(Code::kNotFound, "--chat-template {}: no such file, and none of the built-in: {}",
                  choice, kBuiltInTemplates);
    }
    parts->main = parsed(fs.read(choice), choice);
  } else if (fs.exists(own)) {
    parts->main = parsed(fs.read(own), own);
  } else if (config.is_object() && config.contains("chat_template") &&
             !config["chat_template"].is_null()) {
    add_templates(config["chat_template"], config_path, parts.get());
  } else {
    throw_error(Code::kNotFound,
                "{} has no chat template: neither chat_template.jinja nor \"chat_template\" in "
                "tokenizer_config.json; give one with --chat-template FILE, or a built-in one: {}",
                model_folder, kBuiltInTemplates);
  }
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(parts)));
}

std::unique_ptr<ChatTemplate> ChatTemplate::parse(const std::string& source,
                                                  const std::string& name, const Json& tokens) {
  auto parts = std::make_unique<ChatTemplateParts>();
  parts->tokens = tokens;
  parts->main = parsed(source, name);
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(parts)));
}

std::string ChatTemplate::render(const Conversation& c) const {
  return run(*parts_, c, c.messages, c.add_generation_prompt, false).text;
}

TrainingText ChatTemplate::render_training(const Conversation& c) const {
  const bool tools = has_tools(c);
  const jinja::Template& t = tools && parts_->with_tools ? *parts_->with_tools : *parts_->main;
  jinja::Template::Tracked whole = run(*parts_, c, c.messages, false, t.has_generation());
  TrainingText result;
  std::vector<Range> ranges = std::move(whole.generations);
  if (!t.has_generation()) {
    for (size_t i = 0; i < c.messages.size(); ++i) {
      if (is_assistant(c.messages[i])) ranges.push_back(range_of(*parts_, c, i, whole.text));
    }
  }
  for (const auto& [begin, end] : ranges) {
    // A turn after a turn of the same side may lie within it.
    const int64_t from =
        result.targets.empty() ? begin : std::max(begin, result.targets.back().end);
    if (end > from) result.targets.push_back({from, end});
  }
  const bool said = std::any_of(c.messages.begin(), c.messages.end(), is_assistant);
  if (said && result.targets.empty()) {
    throw_error(Code::kInvalidArgument,
                "chat template {}: there are assistant's messages, and it marks or adds nothing "
                "for them",
                t.name());
  }
  result.text = std::move(whole.text);
  return result;
}

const std::string& ChatTemplate::end_of_turn() const { return parts_->end_of_turn; }
const std::string& ChatTemplate::source() const { return parts_->main->source(); }
const std::string& ChatTemplate::name() const { return parts_->main->name(); }

bool prompt_opens_reasoning(std::string_view prompt) {
  const size_t open = prompt.rfind("<think>");
  if (open == prompt.npos) return false;
  // An open one that a user wrote is followed by the rest of the conversation.
  const std::string_view rest = prompt.substr(open + 7);
  return std::all_of(rest.begin(), rest.end(), is_python_space);
}

}  // namespace moraine
