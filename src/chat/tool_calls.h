// ToolCalls: an assistant's generated text, as it arrives, cut into content, reasoning and calls of tools.
//
//   format         what a call looks like
//   kZaya          <zyphra_tool_call> CALL </zyphra_tool_call>
//   kHermes        <tool_call> CALL </tool_call>                      (Qwen 2.5 and 3, Hermes, OLMo 3)
//   kQwenCoder     the same, CALL as XML
//   kLlama         {"name": ..., "parameters": {...}} as the whole answer, also behind <|python_tag|>,
//                  several with ";" between
//   kMistral       [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...], or for each call
//                  [TOOL_CALLS]name[ARGS]{...}
//
// CALL is {"name": ..., "arguments": {...}} or the XML form
// <function=name><parameter=key>value</parameter>...</function>, whichever is there; the XML form is
// also taken without the tag around it in kZaya and kQwenCoder.
// A parameter's value is what the tool's schema says it is: a string unless that names another type and
// the value is JSON of it; one line end after <parameter=key> and one before </parameter> are not part of it.
// What begins like a call and is none is content; what the end of the text leaves of a tag within or behind a call
// is not. White space between content and a call, and between calls, is dropped.
//
// Input:   text decoded with special tokens kept (the tags are special tokens in some vocabularies) and the
//          end-of-turn token cut off. Any bytes.
// Order:   the deltas joined are the same however the text was cut into pieces.
// Errors:  none: any text is an answer.
// Cost:    linear in the text, except that a value of the XML form that is no string is searched again with
//          each piece; memory for the arguments, and for what is held back: a tag, such a value, a call
//          whose name is not known yet.
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace moraine {

enum class ToolFormat { kNone, kZaya, kHermes, kQwenCoder, kLlama, kMistral };

// By the marks in the text of a chat template; kNone if there are none.
ToolFormat detect_tool_format(std::string_view template_source);
const char* tool_format_name(ToolFormat format);  // "zaya", "hermes", ...

struct ReplyDelta {
  enum class Kind {
    kContent,        // text: more of the content
    kReasoning,      // text: more of what stands in <think>
    kToolBegin,      // text: the function's name
    kToolArguments,  // text: more of the arguments, JSON text
    kToolEnd,        // text: empty if the call is complete, else what is wrong with it
  };
  Kind kind;
  std::string text;
  int64_t tool_index;  // counts calls from 0; -1 for content and reasoning
};

struct ReplyOptions {
  ToolFormat format = ToolFormat::kNone;  // kNone also where the request declares no tools
  bool reasoning = true;                  // <think>...</think> at the beginning is reasoning
  bool starts_in_reasoning = false;  // the prompt ended inside <think> (prompt_opens_reasoning)
  Json tools = nullptr;              // the declared tools: types of parameters, names for kLlama
};

class ReplyParser {
 public:
  explicit ReplyParser(const ReplyOptions& options);
  ~ReplyParser();
  ReplyParser(const ReplyParser&) = delete;
  ReplyParser& operator=(const ReplyParser&) = delete;

  // What `piece` adds; may be nothing. Deltas of one kind and index follow each other unjoined.
  std::vector<ReplyDelta> feed(std::string_view piece);
  // At the end of the text: what was held back. Then no more feed.
  std::vector<ReplyDelta> finish();

 private:
  class State;
  std::unique_ptr<State> state_;
};

// The whole text at once.
struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text; may be cut if not complete
  std::string problem;    // empty if complete
};
struct Reply {
  std::string content;
  std::string reasoning;
  std::vector<ToolCall> calls;
};
Reply parse_reply(std::string_view text, const ReplyOptions& options);
// Joins deltas into `reply`.
void add_to_reply(const std::vector<ReplyDelta>& deltas, Reply* reply);

}  // namespace moraine
