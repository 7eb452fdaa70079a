// ToolGrammar of a format: the fixed texts around calls, as the formats of chat/tool_calls.h are written.
#pragma once

#include "chat/tool_calls.h"
#include "grammar/grammar.h"
#include "server/conversation.h"

namespace moraine {

// Whether calls are held to the XML of the format: calls that may come, of tools whose parameters it can write.
bool writes_tags(const ToolUse& use, ToolFormat format);

// Errors: RequestError for a format without calls.
ToolGrammar tool_grammar(const ToolUse& use, ToolFormat format);

}  // namespace moraine
