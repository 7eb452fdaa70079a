// Json: small JSON documents that are built, or read and changed, through nlohmann-json.
//
// Large ones, and those whose members may be given twice, are read with base/json_document.h.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace moraine {

using Json = nlohmann::ordered_json;

// Errors: kCorrupt with `name` and what is no JSON: the byte where the text stops being it, a
// number that no double holds, arrays and objects nested deeper than kJsonDepth.
inline constexpr int64_t kJsonDepth = 256;
Json parse_json(const std::string& text, const std::string& name);

// The text; indent -1: on one line. Bytes that are not UTF-8 become U+FFFD, so writing never fails.
std::string json_text(const Json& json, int indent = -1);

}  // namespace moraine
