// MessageForm: what OpenAI's protocol writes in several ways, in the one way that templates read.
//
// For who asks a model (server/conversation.h) and for who makes data to learn from (cli/conversation_line.h): a
// template must write the same for both.
//
// Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace moraine {

// The member of a part of content that holds its text, by the part's type; empty: such a part is no text.
std::string_view text_member(std::string_view part_type);

// A call's arguments, which the protocol writes as the JSON text of an object: that object. What is none stays.
Json call_arguments(const std::string& text);

// A call of a function as templates see it: {"id", "type", "function": {"name", "arguments"}}, in this order, which is
// that of the text where a template writes one of these as JSON. Arguments: a text as above; null: none, {}.
Json served_call(const std::string& id, const std::string& name, const Json& arguments);

}  // namespace moraine
