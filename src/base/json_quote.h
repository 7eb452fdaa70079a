// JsonQuote: a text as a JSON string, for JSON that is written by hand in a fixed form.
#pragma once

#include <string>
#include <string_view>

namespace moraine {

// "text" with quotes and escapes. Errors: kInvalidArgument if it is no UTF-8.
std::string json_quote(std::string_view text);

}  // namespace moraine
