// TaggedParameters: the arguments of a call as parameters between tags, as ZAYA and Qwen Coder write them.
//
//   <parameter=key>\nVALUE\n</parameter>\n   for each, in the order in which they are declared
//
// VALUE is bare text where the parameter's type is "string" or not given, else JSON of its schema. Bare text holds to
// enum and const of strings, and if the type is given to pattern, format and length, and has no "</parameter>" in it.
// Parameters that are not declared do not come.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "grammar/schema.h"

namespace moraine {

// Whether parameters can be written so: null, or an object with its members declared and no keyword around them.
bool has_tagged_form(const Json& parameters);

// The node of all parameters, then `end`. `name` as in SchemaCompiler::compile_document.
int32_t compile_tagged(SchemaCompiler& schemas, const Json& parameters, const std::string& end,
                       const std::string& name, bool strict);

}  // namespace moraine
