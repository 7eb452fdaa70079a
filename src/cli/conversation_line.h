// ConversationLine: one conversation of a .jsonl line as tokens, what the assistant says marked as targets.
//
//   {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}], "tools": [...]}
//
// The text is that of the chat template, the marks are its own (chat/chat_template.h): each answer with its end of
// turn. The text of a special token that stands in a message of anybody but the assistant stays text. "tools" may be
// absent.
//
// Errors:  kInvalidArgument: no JSON, no object, no such field, messages that are none, what the template refuses.
// Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "chat/chat_template.h"
#include "data/build_dataset.h"

namespace moraine {

struct ConversationRule {
  const ChatTemplate& chat;
  const Tokenizer& tokenizer;
  std::string field = "messages";
};

EncodedLine encode_conversation(const ConversationRule& rule, std::string_view line);

}  // namespace moraine
