// TaggedParameters: from the last parameter to the first, each followed by what may come behind it.
#include "grammar/tagged_parameters.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "grammar/member.h"

namespace moraine {
namespace {

using Kind = GrammarNode::Kind;

constexpr const char* kEnd = "</parameter>";

bool is_bare(const Json& schema) {
  const Json* type = member(schema, "type");
  return type == nullptr || (type->is_string() && type->get<std::string>() == "string");
}

// The texts of enum or const; empty if there are none, or some value is no text that can stand between tags.
std::vector<std::string> texts_of(const Json& schema) {
  Json values = Json::array();
  if (const Json* only = member(schema, "const")) values.push_back(*only);
  if (const Json* list = member(schema, "enum"); list != nullptr && values.empty()) values = *list;
  std::vector<std::string> texts;
  for (const Json& value : values) {
    if (!value.is_string() || value.get<std::string>().find(kEnd) != std::string::npos) return {};
    texts.push_back(value.get<std::string>());
  }
  return texts;
}

// All texts in which `word` does not stand: states are how much of it has come (Knuth, Morris, Pratt).
Automaton without_word(const std::string& word) {
  const auto next = [&](size_t at, char byte) {
    std::string come = word.substr(0, at) + byte;
    while (!word.starts_with(come)) come.erase(0, 1);
    return static_cast<int32_t>(come.size());
  };
  std::vector<std::vector<Automaton::Edge>> edges(word.size());
  for (size_t at = 0; at < word.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      const int32_t to = next(at, static_cast<char>(byte));
      if (to == static_cast<int32_t>(word.size())) continue;
      edges[at].push_back({static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), to});
    }
  }
  return Automaton::of_states(edges, std::vector<bool>(word.size(), true));
}

SchemaCompiler::BareText bare_text(SchemaCompiler& schemas, const SchemaCompiler::Part& part) {
  const Json& schema = part.schema;
  if (std::vector<std::string> texts = texts_of(schema); !texts.empty()) {
    const Automaton any_of = Automaton::of_strings(std::move(texts));
    return {schemas.automaton(any_of, part.name), any_of.accepting(0)};
  }
  Json held = Json::object();
  for (const char* key : {"pattern", "format", "minLength", "maxLength"}) {
    const Json* value = member(schema, key);
    if (value != nullptr && member(schema, "type") != nullptr) held[key] = *value;
  }
  static const Automaton kNoEnd = without_word(kEnd);
  return schemas.bare_text(held, kNoEnd, part.name);
}

// The value, and the end of its parameter.
int32_t value_node(SchemaCompiler& schemas, const SchemaCompiler::Part& part) {
  const int32_t end = schemas.literal(std::string("\n") + kEnd + "\n", part.name);
  const auto then_end = [&](int32_t value) {
    return schemas.add_node({.kind = Kind::kSequence, .parts = {value, end}}, part.name);
  };
  if (!is_bare(part.schema)) return then_end(schemas.compile_part(part));
  const SchemaCompiler::BareText text = bare_text(schemas, part);
  const int32_t value = then_end(text.node);
  if (!text.may_be_empty) return value;
  return schemas.add_node({.kind = Kind::kAny, .parts = {value, end}}, part.name);
}

}  // namespace

bool has_tagged_form(const Json& parameters) {
  if (parameters.is_null()) return true;
  if (!parameters.is_object()) return false;
  for (const char* key : {"$ref", "allOf", "anyOf", "oneOf", "enum", "const"}) {
    if (parameters.contains(key)) return false;
  }
  const Json none = Json::object();
  const Json* declared = member(parameters, "properties");
  if (declared == nullptr) declared = &none;
  if (!declared->is_object()) return false;
  for (const auto& [key, schema] : declared->items()) {
    if (key.empty() || key.find_first_of("<>\n") != std::string::npos || !schema.is_object())
      return false;
  }
  const Json* required = member(parameters, "required");
  if (required == nullptr) return true;
  return required->is_array() &&
         std::all_of(required->begin(), required->end(), [&](const Json& key) {
           return key.is_string() && declared->contains(key.get<std::string>());
         });
}

int32_t compile_tagged(SchemaCompiler& schemas, const Json& parameters, const std::string& end,
                       const std::string& name, bool strict) {
  schemas.check_bytes(parameters, name);
  int32_t behind = schemas.literal(end, name);
  const Json* declared = member(parameters, "properties");
  const Json* required = member(parameters, "required");
  if (declared == nullptr) return behind;
  std::set<std::string_view> needed;
  if (required != nullptr) {
    for (const Json& key : *required) needed.insert(key.text());
  }
  std::vector<std::pair<std::string, const Json*>> all;
  for (const auto& [key, schema] : declared->items()) all.emplace_back(key, &schema);
  for (size_t i = all.size(); i-- > 0;) {
    const auto& [key, schema] = all[i];
    const std::string path = name + "/properties/" + printable(key, 60);
    const int32_t value = value_node(
        schemas, {.document = parameters, .schema = *schema, .name = path, .strict = strict});
    const int32_t begin = schemas.literal("<parameter=" + key + ">\n", path);
    const int32_t with =
        schemas.add_node({.kind = Kind::kSequence, .parts = {begin, value, behind}}, path);
    behind = needed.contains(key)
                 ? with
                 : schemas.add_node({.kind = Kind::kAny, .parts = {with, behind}}, path);
  }
  return behind;
}

}  // namespace moraine
