// ChatPrompt: a conversation as tokens, in which special tokens are only what the template wrote.
//
// The template joins its own text and the messages' into one string, in which "<|im_end|>" of a message
// looks like the template's. So special tokens in strings of the conversation are broken by a private-use
// character that the conversation does not hold, before it is rendered; pieces of the result with that
// character are encoded as ordinary text without it. A conversation without such strings is rendered
// and encoded as it is.
//
// Errors:  those of ChatTemplate::render, of Tokenizer::encode and of `check`.
// Threads: any.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "chat/chat_template.h"
#include "server/special_texts.h"
#include "tokenizer/tokenizer.h"

namespace moraine {

struct ChatPrompt {
  std::vector<int32_t> tokens;
  std::string text;  // as rendered, without the marks
};

// `check` sees the text before it is encoded; may be empty.
ChatPrompt chat_prompt(const ChatTemplate& chat, const Conversation& conversation,
                       const Tokenizer& tokenizer, const SpecialTexts& specials,
                       const std::function<void(const std::string& text)>& check = {});

}  // namespace moraine
