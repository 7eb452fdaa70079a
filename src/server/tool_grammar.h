// ToolGrammar of a format: the fixed texts around calls, as the formats of chat/tool_calls.h are written.
#pragma once

#include <cstdint>
#include <memory>

#include "chat/tool_calls.h"
#include "grammar/grammar.h"
#include "grammar/token_trie.h"
#include "server/conversation.h"

namespace moraine {

// Whether calls are held to the XML of the format: calls that may come, of tools whose parameters it can write.
bool writes_tags(const ToolUse& use, ToolFormat format);

// Errors: RequestError for a format without calls.
ToolGrammar tool_grammar(const ToolUse& use, ToolFormat format);

// The vocabulary for grammars. Of its special tokens those that spell such a text count there, and those that stand
// around what is thought, or before a call whose grammar begins behind it, in text that is free; no others count.
std::shared_ptr<const TokenTrie> tool_token_trie(const Tokenizer& tokenizer, int64_t vocab_size,
                                                 ToolFormat format);

}  // namespace moraine
