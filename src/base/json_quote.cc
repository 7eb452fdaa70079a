// As base/json.h prints a string.
#include "base/json_quote.h"

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace moraine {

std::string json_quote(std::string_view text) {
  if (const int64_t at = first_invalid_utf8(text); at >= 0) {
    throw_error(Code::kInvalidArgument,
                "write '{}' as JSON: its byte {} begins no character, wanted UTF-8",
                printable(text, 256), at);
  }
  return json_text(Json(text));
}

}  // namespace moraine
