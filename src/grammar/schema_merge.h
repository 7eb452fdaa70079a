// SchemaMerge: a schema of exactly what two schemas allow, for allOf and for keywords beside $ref and anyOf.
//
// Schemas inside (members, items) are not merged here but put into an allOf, which is merged when
// it is compiled. $ref and allOf of the two themselves must be gone.
//
// Errors: kInvalidArgument with `place` and the keyword: two patterns, two formats, two anyOf or
//         oneOf, a keyword that is not known with two values, or too much work.
// Cost:    as copying both, whatever is in them; counted in CompileWork before it is done.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "grammar/compile_work.h"

namespace moraine {

// The schema of each item of an array: of the first ones, and of all others.
struct ItemSchemas {
  Json first = Json::array();
  Json others = true;
};
// Also the older form: "items" as a list, with "additionalItems". `place` is for messages.
ItemSchemas item_schemas(const Json& schema, const std::string& place);

Json merge_schemas(const Json& a, const Json& b, const std::string& place, CompileWork& work);

// The names in "type"; all seven if there is none.
std::vector<std::string> schema_types(const Json& schema, const std::string& place);

}  // namespace moraine
