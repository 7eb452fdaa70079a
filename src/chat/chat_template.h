// ChatTemplate: a conversation as the text that a model was trained on, by the template among its files.
//
// Where it comes from, first found: `chat_template.jinja`; "chat_template" in `tokenizer_config.json`, a
// string or a list of {name, template} of which `default`, and `tool_use` where tools are given, are used.
// The language is the subset of Jinja2 of chat/jinja/, set up as Hugging Face does
// (docs/chat_templates.md). The text of special tokens in it becomes those tokens when it is encoded
// without adding special tokens: the template writes <bos> itself.
//
// Errors:  load: kNotFound without a template, with the remedy; kInvalidArgument for a template that does
//          not parse, with its line; kCorrupt for damaged JSON. render: kInvalidArgument for what the
//          template refuses (raise_exception), for what it does that is unknown, and past a limit.
// Threads: immutable; any thread may render.
// Cost:    1000 messages of 200 bytes in 2 ms on one core; render_training without
//          {% generation %} renders three times for each of the assistant's turns.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"

namespace moraine {

// What is rendered. Messages and tools as in the OpenAI protocol; every other member goes to the template.
struct Conversation {
  Json messages = Json::array();  // [{"role", "content", "tool_calls"?, "reasoning_content"?, ...}]
  Json tools = nullptr;           // [{"type": "function", "function": {...}}]; null or empty: none
  Json variables = Json::object();  // further variables of the template: {"enable_thinking": false}
  bool add_generation_prompt = true;  // end with what precedes an answer
};

struct TargetRange {
  int64_t begin;  // byte
  int64_t end;    // byte behind
};

struct TrainingText {
  std::string text;
  std::vector<TargetRange> targets;  // in order, disjoint, none empty; the loss is taken there
};

struct ChatTemplateParts;

class ChatTemplate {
 public:
  // `choice`: empty: the model's own; "chatml" or "plain": built in (docs/chat_templates.md); anything
  // else: the path of a file in Jinja. "chatml" writes <|im_start|> and <|im_end|>; "plain" writes roles
  // as words, for tokenizers without such tokens.
  static std::unique_ptr<ChatTemplate> load(FileSystem& fs, const std::string& model_folder,
                                            const std::string& choice, const Tokenizer& tokenizer);
  // A template's text. `tokens`: variables that are always there: {"bos_token": "<s>", "eos_token": ...}.
  static std::unique_ptr<ChatTemplate> parse(const std::string& source, const std::string& name,
                                             const Json& tokens);
  ~ChatTemplate();

  // The prompt. `tools` and messages are not looked at here: what the template needs, it asks for.
  std::string render(const Conversation& conversation) const;

  // The conversation and which bytes of it the assistant said, its end-of-turn text included, white space
  // after that not. By {% generation %} blocks where the template has them, else by what each assistant's
  // turn adds to the text before it; add_generation_prompt is not looked at.
  // Errors: also kInvalidArgument where the template writes earlier turns in another way once there are
  // later ones, so that nothing of the kind can be told; the message says what to do.
  TrainingText render_training(const Conversation& conversation) const;

  // What the template writes behind an assistant's answer, without white space after it: "<|im_end|>".
  // Where generation ends, besides at the tokenizer's eos. Empty if it can not be told.
  const std::string& end_of_turn() const;
  // The text of the template (of `default`), for messages and for detect_tool_format (chat/tool_calls.h).
  const std::string& source() const;
  // "models/m/chat_template.jinja", "chatml": for messages and logs.
  const std::string& name() const;

 private:
  explicit ChatTemplate(std::unique_ptr<ChatTemplateParts> parts);
  std::unique_ptr<ChatTemplateParts> parts_;
};

// Whether a prompt leaves an answer inside of its reasoning: its last mark is <think>, not </think>.
bool prompt_opens_reasoning(std::string_view prompt);

}  // namespace moraine
