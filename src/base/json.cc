// Turns the library's exceptions into Error. It recurses where it prints, so depth is looked at
// before.
#include "base/json.h"

#include "base/error.h"

namespace moraine {
namespace {

// The deepest nesting of arrays and objects; strings are passed over.
int64_t depth_of(const std::string& text) {
  int64_t depth = 0, deepest = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '[' || c == '{')) {
      deepest = std::max(deepest, ++depth);
    } else if (!quoted && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

Json parse_json(const std::string& text, const std::string& name) {
  if (const int64_t depth = depth_of(text); depth > kJsonDepth) {
    throw_error(Code::kCorrupt, "read {}: nested {} deep, the limit is {}", name, depth,
                kJsonDepth);
  }
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    throw_error(Code::kCorrupt, "{}: not JSON at byte {}: {}", name, e.byte, e.what());
  } catch (const nlohmann::json::exception& e) {  // a number out of range
    throw_error(Code::kCorrupt, "{}: not JSON: {}", name, e.what());
  }
}

std::string json_text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace moraine
