// Json: small JSON documents (configs, manifests, metrics), through nlohmann-json.
//
// Large ones (a 30 MB tokenizer.json) are read by the tokenizer through simdjson, 25 times faster.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace moraine {

using Json = nlohmann::ordered_json;

// Errors: kCorrupt with `name` and the byte where the text stops being JSON.
Json parse_json(const std::string& text, const std::string& name);

}  // namespace moraine
