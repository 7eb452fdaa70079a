// SchemaKeywords: which keywords of JSON Schema there are, and the form of their values.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace moraine {

// Says nothing about which values are allowed: title, description, default, $id, x-..., ...
bool is_schema_note(const std::string& keyword);

// A keyword that forbids nothing with this value: uniqueItems false.
bool says_nothing(const std::string& keyword, const Json& value);

// What is wrong with the schema's own keywords, or empty: a keyword that is not supported or not
// known, a value of another kind than its keyword wants. Schemas inside are not looked into.
std::string schema_problem(const Json& schema);

// The types that keywords of only some types speak of: minLength of strings.
std::vector<std::string> types_of_keywords(const Json& schema);

// A pattern (grammar/pattern.h) of every text of this format; nullptr for one that is not checked.
const char* pattern_of_format(const std::string& format);

}  // namespace moraine
