// Turns the library's parse exception into an Error.
#include "base/json.h"

#include "base/error.h"

namespace moraine {

Json parse_json(const std::string& text, const std::string& name) {
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    throw_error(Code::kCorrupt, "{}: not JSON at byte {}: {}", name, e.byte, e.what());
  }
}

}  // namespace moraine
