// Tables: what is supported with the form of its value, what is refused, what is passed over.
#include "grammar/schema_keywords.h"

#include <algorithm>
#include <string_view>

#include "base/printable.h"

namespace moraine {
namespace {

enum class Form {
  kSchema,
  kSchemas,  // a list of them, not empty
  kSchemaList,
  kItems,  // a schema or a list of them
  kSchemaMap,
  kText,
  kTexts,
  kBoolean,
  kNumber,
  kType,
  kList,
  kAnything,
};

struct SchemaKeyword {
  const char* name;
  Form form;
  const char* type;  // nullptr: of no type alone
};

constexpr SchemaKeyword kKeywords[] = {
    {"type", Form::kType, nullptr},
    {"enum", Form::kList, nullptr},
    {"const", Form::kAnything, nullptr},
    {"anyOf", Form::kSchemas, nullptr},
    {"oneOf", Form::kSchemas, nullptr},
    {"allOf", Form::kSchemas, nullptr},
    {"$ref", Form::kText, nullptr},
    {"$defs", Form::kSchemaMap, nullptr},
    {"definitions", Form::kSchemaMap, nullptr},
    {"nullable", Form::kBoolean, nullptr},
    {"properties", Form::kSchemaMap, "object"},
    {"required", Form::kTexts, "object"},
    {"additionalProperties", Form::kSchema, "object"},
    {"items", Form::kItems, "array"},
    {"prefixItems", Form::kSchemaList, "array"},
    {"additionalItems", Form::kSchema, "array"},
    {"minItems", Form::kNumber, "array"},
    {"maxItems", Form::kNumber, "array"},
    {"minLength", Form::kNumber, "string"},
    {"maxLength", Form::kNumber, "string"},
    {"pattern", Form::kText, "string"},
    {"format", Form::kText, "string"},
    {"minimum", Form::kNumber, "number"},
    {"maximum", Form::kNumber, "number"},
    {"exclusiveMinimum", Form::kNumber, "number"},
    {"exclusiveMaximum", Form::kNumber, "number"},
};

// These constrain, and would be a promise that is not kept.
constexpr const char* kRefused[] = {
    "not",           "if",
    "then",          "else",
    "multipleOf",    "uniqueItems",
    "contains",      "minContains",
    "maxContains",   "minProperties",
    "maxProperties", "patternProperties",
    "propertyNames", "dependentSchemas",
    "dependencies",  "dependentRequired",
    "$dynamicRef",   "unevaluatedProperties",
    "$recursiveRef", "unevaluatedItems",
};

constexpr const char* kNotes[] = {
    "title",
    "description",
    "default",
    "examples",
    "example",
    "$schema",
    "$id",
    "id",
    "$comment",
    "$anchor",
    "$dynamicAnchor",
    "$vocabulary",
    "$recursiveAnchor",
    "deprecated",
    "readOnly",
    "writeOnly",
    "strict",
    "contentMediaType",
    "contentEncoding",
    "contentSchema",
    "externalDocs",
    "xml",
    "discriminator",
    "propertyOrdering",
    "enumNames",
    "enumDescriptions",
    "markdownDescription",
};

template <size_t n>
bool is_in(const char* const (&list)[n], const std::string& word) {
  return std::any_of(list, list + n, [&](const char* one) { return word == one; });
}

bool is_schema(const Json& json) { return json.is_object() || json.is_boolean(); }
bool all_schemas(const Json& json) { return std::all_of(json.begin(), json.end(), is_schema); }

// What a value of this form is, or nullptr if `value` is one.
const char* wanted(Form form, const Json& value) {
  switch (form) {
    case Form::kSchema:
      return is_schema(value) ? nullptr : "a schema (an object, true or false)";
    case Form::kSchemas:
      if (value.is_array() && !value.empty() && all_schemas(value)) return nullptr;
      return "a list of at least one schema";
    case Form::kSchemaList:
      return value.is_array() && all_schemas(value) ? nullptr : "a list of schemas";
    case Form::kItems:
      if (is_schema(value) || (value.is_array() && all_schemas(value))) return nullptr;
      return "a schema or a list of schemas";
    case Form::kSchemaMap:
      return value.is_object() && all_schemas(value) ? nullptr : "an object of schemas";
    case Form::kText:
      return value.is_string() ? nullptr : "a string";
    case Form::kTexts: {
      const auto text = [](const Json& one) { return one.is_string(); };
      const bool texts = value.is_array() && std::all_of(value.begin(), value.end(), text);
      return texts ? nullptr : "a list of strings";
    }
    case Form::kBoolean:
      return value.is_boolean() ? nullptr : "true or false";
    case Form::kNumber:
      return value.is_number() ? nullptr : "a number";
    case Form::kType:
      return value.is_string() || value.is_array() ? nullptr : "a type or a list of types";
    case Form::kList:
      return value.is_array() ? nullptr : "a list";
    case Form::kAnything:
      return nullptr;
  }
  return nullptr;
}

}  // namespace

bool says_nothing(const std::string& keyword, const Json& value) {
  if (keyword == "uniqueItems") return value == Json(false);
  if (keyword == "unevaluatedProperties" || keyword == "unevaluatedItems" ||
      keyword == "propertyNames") {
    return value == Json(true) || (keyword == "propertyNames" && value == Json::object());
  }
  if (keyword == "minProperties") return value == Json(0);
  if (keyword == "patternProperties" || keyword == "dependentSchemas" ||
      keyword == "dependentRequired" || keyword == "dependencies") {
    return value == Json::object();
  }
  return false;
}

namespace {

#define MR_DATE                                                                                  \
  "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)" \
  "|02-(?:0[1-9]|1\\d|2[0-8]))|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|"                      \
  "(?:[02468][048]|[13579][26])00)-02-29)"
#define MR_TIME \
  "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:[Zz]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define MR_BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define MR_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"

struct FormatPattern {
  const char* name;
  const char* pattern;
};

// RFC 3339; RFC 4122; RFC 2673; RFC 1123; e-mail as HTML's input element takes it.
constexpr FormatPattern kFormats[] = {
    {"date", "^" MR_DATE "$"},
    {"time", "^" MR_TIME "$"},
    {"date-time", "^" MR_DATE "[Tt]" MR_TIME "$"},
    {"uuid", "^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"},
    {"ipv4", "^" MR_BYTE "(?:\\." MR_BYTE "){3}$"},
    {"email", "^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@" MR_LABEL
              "(?:\\." MR_LABEL ")+$"},
};

#undef MR_DATE
#undef MR_TIME
#undef MR_BYTE
#undef MR_LABEL

}  // namespace

bool is_schema_note(const std::string& keyword) {
  return keyword.starts_with("x-") || is_in(kNotes, keyword);
}

std::string schema_problem(const Json& schema) {
  if (schema.is_boolean()) return "";
  if (!schema.is_object()) {
    return std::string("it is ") + printable(json_text(schema), 100) +
           ", want an object, true or false";
  }
  for (const auto& [keyword, value] : schema.items()) {
    if (is_schema_note(keyword) || says_nothing(keyword, value)) continue;
    if (is_in(kRefused, keyword)) return keyword + " is not supported";
    const auto known =
        std::find_if(std::begin(kKeywords), std::end(kKeywords),
                     [&word = keyword](const SchemaKeyword& k) { return word == k.name; });
    if (known == std::end(kKeywords)) {
      return std::string("'") + printable(keyword, 100) +
             "' is no known keyword; names of notes of your own begin with x-";
    }
    const char* want = wanted(known->form, value);
    if (want == nullptr) continue;
    return keyword + " is " + printable(json_text(value), 100) + ", want " + want;
  }
  return "";
}

std::vector<std::string> types_of_keywords(const Json& schema) {
  std::vector<std::string> types;
  for (const SchemaKeyword& keyword : kKeywords) {
    if (keyword.type == nullptr || !schema.contains(keyword.name)) continue;
    if (types.empty() || types.back() != keyword.type) types.emplace_back(keyword.type);
  }
  return types;
}

const char* pattern_of_format(const std::string& format) {
  for (const FormatPattern& known : kFormats) {
    if (format == known.name) return known.pattern;
  }
  return nullptr;
}

}  // namespace moraine
