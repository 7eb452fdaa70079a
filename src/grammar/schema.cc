// From keywords to nodes: references, choices, then one function for each type.
#include "grammar/schema.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json_quote.h"
#include "base/printable.h"
#include "grammar/schema_disjoint.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_merge.h"

namespace moraine {
namespace {

using Kind = GrammarNode::Kind;

// Units of CompileWork.
constexpr int64_t kSchemaWork = 200;      // of a schema, whatever is in it
constexpr int64_t kKeywordWork = 60;      // of a keyword that is looked up
constexpr int64_t kEntryWork = 8;         // of what a keyword lists
constexpr int64_t kStringStateWork = 25;  // of a state of an automaton of strings
constexpr int64_t kValueWork = 60;        // of a value of an enum
constexpr int64_t kNameWork = 60;         // of the name of a member, and
constexpr int64_t kNameByteWork = 4;      // of each of its bytes
constexpr int64_t kReferenceWork = 100;

// Keywords that hold beside all others.
constexpr std::initializer_list<const char*> kBesideAll = {"$defs", "definitions", "nullable"};

// Neither a note nor one of these.
bool holds(const JsonMember& keyword, std::initializer_list<const char*> others) {
  const auto same = [&](const char* other) { return keyword.name == other; };
  return !std::any_of(others.begin(), others.end(), same) && !is_schema_note(keyword.name) &&
         !says_nothing(keyword.name, keyword.value);
}

// Without notes, and without these.
Json without(const Json& schema, std::initializer_list<const char*> keywords) {
  Json rest = Json::object();
  for (const JsonMember& keyword : schema.items()) {
    if (holds(keyword, keywords)) rest[keyword.name] = keyword.value;
  }
  return rest;
}

// ~1 is a slash, ~0 a tilde, %XX a byte.
std::string pointer_part(std::string_view part) {
  std::string out;
  for (size_t i = 0; i < part.size(); ++i) {
    if (part[i] == '~' && i + 1 < part.size() && (part[i + 1] == '0' || part[i + 1] == '1')) {
      out += part[++i] == '0' ? '~' : '/';
    } else if (part[i] == '%' && i + 2 < part.size()) {
      const std::string hex(part.substr(i + 1, 2));
      char* end = nullptr;
      const long byte = std::strtol(hex.c_str(), &end, 16);
      if (*end != '\0') {
        out += part[i];
        continue;
      }
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += part[i];
    }
  }
  return out;
}

bool of_type(const Json& value, const std::string& type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  return value.is_number_integer() ||
         (value.is_number_float() && std::floor(value.get<double>()) == value.get<double>());
}

}  // namespace

void SchemaCompiler::refuse(const std::string& path, const std::string& what) {
  throw_error(Code::kInvalidArgument, "schema {}: {}", path, what);
}

SchemaCompiler::Place SchemaCompiler::Place::at(const std::string& part) const {
  return {path.size() > 400 ? path : path + "/" + printable(part, 60), depth + 1};
}

int32_t SchemaCompiler::add_node(GrammarNode node, const std::string& path) {
  if (static_cast<int64_t>(out_->nodes.size()) >= limits_.nodes) {
    refuse(path, fmt::format("with it there are more than {} parts, which is the limit; leave out "
                             "properties and alternatives, or write what is there several times "
                             "once, in $defs, and refer to it by $ref without keywords beside it",
                             limits_.nodes));
  }
  out_->nodes.push_back(std::move(node));
  return static_cast<int32_t>(out_->nodes.size()) - 1;
}

int32_t SchemaCompiler::add_any(std::vector<int32_t> parts, const std::string& path) {
  return parts.size() == 1 ? parts[0]
                           : add_node({.kind = Kind::kAny, .parts = std::move(parts)}, path);
}

int32_t SchemaCompiler::add_automaton(Automaton automaton, const Place& place) {
  if (automaton.empty()) return add_any({}, place.path);
  work_.spend_at(automaton.states() * kStringStateWork, place.path);
  states_ += automaton.states();
  if (states_ > limits_.automaton_states_all) {
    refuse(place.path, fmt::format("patterns, formats, enums and ranges of numbers need more than "
                                   "{} states together, which is the limit",
                                   limits_.automaton_states_all));
  }
  out_->automata.push_back(std::move(automaton));
  return add_node(
      {.kind = Kind::kAutomaton, .automaton = static_cast<int32_t>(out_->automata.size()) - 1},
      place.path);
}

int32_t SchemaCompiler::literal(const std::string& text, const std::string& path) {
  const int32_t index = add_automaton(Automaton::of_strings({text}), {path, 0});
  out_->nodes[index].literal = true;
  return index;
}

int32_t SchemaCompiler::any_value(const std::string& path) {
  const auto [known, made] = known_.try_emplace("any", 0);
  if (!made) return known->second;
  const int32_t any = known->second = add_node({.kind = Kind::kAny}, path);
  const Place place{path, 0};
  std::vector<int32_t> parts = {compile_type("string", Json::object(), place),
                                compile_type("number", Json::object(), place),
                                compile_type("boolean", Json::object(), place),
                                compile_type("null", Json::object(), place),
                                add_node({.kind = Kind::kArray, .rest = any}, path),
                                any_object(path)};
  out_->nodes[any].parts = std::move(parts);
  return any;
}

int32_t SchemaCompiler::any_object(const std::string& path) {
  const auto [known, made] = known_.try_emplace("object", 0);
  if (!made) return known->second;
  GrammarNode node{.kind = Kind::kObject, .next_required = {0}};
  node.keys.build({});
  const int32_t index = known->second = add_node(std::move(node), path);
  const int32_t any = any_value(path);
  out_->nodes[index].rest = any;
  return index;
}

void SchemaCompiler::check_bytes(const Json& schema, const std::string& name) const {
  const int64_t bytes = static_cast<int64_t>(json_text(schema).size());
  if (bytes <= limits_.schema_bytes) return;
  throw_error(Code::kInvalidArgument, "schema {}: it has {} bytes, the limit is {}", name, bytes,
              limits_.schema_bytes);
}

int32_t SchemaCompiler::compile_document(const Json& schema, const std::string& name, bool strict) {
  check_bytes(schema, name);
  document_ = &schema;
  strict_ = strict;
  references_.clear();
  return compile(schema, {name, 0});
}

const Json& SchemaCompiler::referenced(const std::string& reference, const Place& place) {
  work_.spend_at(kReferenceWork + static_cast<int64_t>(reference.size()), place.path);
  const std::string shown = printable(reference, 200);
  if (reference != "#" && !reference.starts_with("#/")) {
    refuse(place.path, "$ref '" + shown + "' is not supported: want #/... in the same schema");
  }
  const Json* at = document_;
  for (size_t begin = 1; begin < reference.size();) {
    const size_t end = std::min(reference.find('/', begin + 1), reference.size());
    const std::string part =
        pointer_part(std::string_view(reference).substr(begin + 1, end - begin - 1));
    const bool number =
        !part.empty() && part.size() < 8 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (at->is_object() && at->contains(part)) {
      at = &(*at)[part];
    } else if (at->is_array() && number && std::stoull(part) < at->size()) {
      at = &(*at)[std::stoull(part)];
    } else {
      refuse(place.path, "$ref '" + shown + "' names nothing in the schema");
    }
    begin = end;
  }
  return *at;
}

int32_t SchemaCompiler::compile_reference(const std::string& reference, const Place& place) {
  const auto known = references_.find(reference);
  if (known != references_.end()) return known->second;
  const Json& target = referenced(reference, place);
  // A kAny of one, so that what it refers to may refer to it.
  const int32_t index = add_node({.kind = Kind::kAny}, place.path);
  references_[reference] = index;
  const int32_t node = compile(target, {printable(reference, 400), place.depth + 1});
  out_->nodes[index].parts = {node};
  return index;
}

Json SchemaCompiler::resolve(const Json& schema, const Place& place) {
  if (place.depth > limits_.schema_depth) {
    refuse(place.path, fmt::format("schemas, $ref and allOf are more than {} deep, which is the "
                                   "limit",
                                   limits_.schema_depth));
  }
  if (schema.is_boolean()) return schema;
  check_keywords(schema, place);
  work_.spend_at(2 * copy_work(schema), place.path);
  Json out = without(schema, {"$ref", "allOf", "$defs", "definitions", "nullable"});
  if (schema.contains("nullable") && schema["nullable"] == Json(true)) {
    if (!out.contains("type") || out.contains("enum") || out.contains("const")) {
      refuse(place.path, "nullable inside allOf, or beside $ref, is supported beside type only");
    }
    out["type"] = schema_types(out, place.path);
    out["type"].push_back("null");
  }
  if (schema.contains("$ref")) {
    const std::string& reference = schema["$ref"].text();
    const Json target = resolve(referenced(reference, place), place.at("$ref"));
    out = merge_schemas(target, out, place.path, work_);
  }
  if (schema.contains("allOf")) {
    for (size_t i = 0; i < schema["allOf"].size(); ++i) {
      const Place part = place.at("allOf").at(std::to_string(i));
      const Json all = resolve(schema["allOf"][i], {part.path, place.depth + 1});
      out = merge_schemas(out, all, part.path, work_);
    }
  }
  return out;
}

void SchemaCompiler::check_keywords(const Json& schema, const Place& place) {
  work_.spend_at(kSchemaWork, place.path);
  if (schema.is_object()) {
    int64_t entries = 0;
    for (const auto& [name, value] : schema.items())
      entries += value.is_string() ? static_cast<int64_t>(value.text().size()) / 16
                                   : kEntryWork * static_cast<int64_t>(value.size());
    work_.spend_at(kKeywordWork * static_cast<int64_t>(schema.size()) + entries, place.path);
  }
  const std::string problem = schema_problem(schema);
  if (!problem.empty()) refuse(place.path, problem);
}

int32_t SchemaCompiler::compile(const Json& schema, const Place& place) {
  if (place.depth > limits_.schema_depth) {
    refuse(place.path,
           fmt::format("schemas are more than {} deep, which is the limit", limits_.schema_depth));
  }
  if (schema.is_boolean()) {
    work_.spend_at(kSchemaWork, place.path);
    return schema.get<bool>() ? any_value(place.path) : add_any({}, place.path);
  }
  check_keywords(schema, place);
  const int32_t value = compile_checked(schema, place);
  if (!schema.contains("nullable") || schema["nullable"] == Json(false)) return value;
  return add_any({value, compile_type("null", Json::object(), place)}, place.path);
}

int32_t SchemaCompiler::compile_checked(const Json& schema, const Place& place) {
  const auto count =
      std::count_if(schema.items().begin(), schema.items().end(),
                    [](const JsonMember& keyword) { return holds(keyword, kBesideAll); });
  if (count == 0) return any_value(place.path);
  if (schema.contains("$ref") && count == 1) {
    return compile_reference(schema["$ref"].text(), place);
  }
  if (schema.contains("$ref") || schema.contains("allOf")) {
    work_.spend_at(copy_work(schema), place.path);
    const Json resolved = resolve(without(schema, kBesideAll), place);
    return compile(resolved, {place.path, place.depth + 1});
  }
  if (schema.contains("anyOf")) return compile_choice(schema, "anyOf", place);
  if (schema.contains("oneOf")) return compile_choice(schema, "oneOf", place);
  if (schema.contains("enum") || schema.contains("const")) return compile_enum(schema, place);
  return compile_types(schema, place);
}

int32_t SchemaCompiler::compile_choice(const Json& schema, const char* keyword,
                                       const Place& place) {
  Json beside = Json::object();
  for (const JsonMember& member : schema.items()) {
    if (member.name == keyword || !holds(member, kBesideAll)) continue;
    work_.spend_at(copy_work(member.value), place.path);
    beside[member.name] = member.value;
  }
  std::vector<int32_t> parts;
  for (size_t i = 0; i < schema[keyword].size(); ++i) {
    Place part = place.at(keyword).at(std::to_string(i));
    part.depth = place.depth + 1;
    if (beside.empty()) {
      parts.push_back(compile(schema[keyword][i], part));
    } else {
      const Json resolved = resolve(schema[keyword][i], part);
      parts.push_back(compile(merge_schemas(resolved, beside, part.path, work_), part));
    }
  }
  if (strict_ && keyword == std::string_view("oneOf")) check_one_of(schema[keyword], place);
  return add_any(std::move(parts), place.path);
}

void SchemaCompiler::check_one_of(const Json& alternatives, const Place& place) {
  const auto follow = [&](const Json& reference) -> const Json& {
    return referenced(reference.text(), place);
  };
  DisjointSearch search{.referenced = follow, .work = work_};
  for (size_t i = 0; i < alternatives.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (disjoint_schemas(alternatives[i], alternatives[j], search)) continue;
      work_.spend_at(0, place.path);
      refuse(place.path,
             fmt::format(
                 "one value might satisfy alternatives {} and {} of oneOf, which strict forbids; "
                 "give them different types, or a required member with different const or enum, "
                 "or write anyOf",
                 j, i));
    }
  }
}

int32_t SchemaCompiler::compile_enum(const Json& schema, const Place& place) {
  for (const JsonMember& member : schema.items()) {
    if (!holds(member, kBesideAll) || !holds(member, {"enum", "const", "type"})) continue;
    refuse(place.path, member.name +
                           " beside enum or const is not supported; "
                           "leave out the values that it forbids");
  }
  const std::vector<std::string> types = schema_types(schema, place.path);
  std::vector<const Json*> values;
  if (const auto only = schema.find("const"); only != schema.end()) {
    values.push_back(&*only);
  } else {
    for (const Json& value : schema["enum"]) values.push_back(&value);
  }
  if (static_cast<int64_t>(values.size()) > limits_.enum_entries) {
    refuse(place.path, fmt::format("the enum has {} values, the limit is {}", values.size(),
                                   limits_.enum_entries));
  }
  std::vector<std::string> texts;
  for (const Json* value : values) {
    const bool fits = std::any_of(types.begin(), types.end(),
                                  [&](const std::string& type) { return of_type(*value, type); });
    if (!fits) continue;
    work_.spend_at(kValueWork + 2 * copy_work(*value), place.path);
    texts.push_back(json_text(*value));
    work_.spend_at(static_cast<int64_t>(texts.back().size()), place.path);
  }
  return add_automaton(Automaton::of_strings(std::move(texts)), place);
}

int32_t SchemaCompiler::compile_types(const Json& schema, const Place& place) {
  std::vector<std::string> types = schema_types(schema, place.path);
  if (!schema.contains("type")) {
    // Keywords that speak of one type mean it, as nearly all who write them do.
    const std::vector<std::string> meant = types_of_keywords(schema);
    if (!meant.empty()) types = meant;
  }
  const bool number = std::find(types.begin(), types.end(), "number") != types.end();
  std::vector<int32_t> parts;
  for (const std::string& type : types) {
    if (type != "integer" || !number) parts.push_back(compile_type(type, schema, place));
  }
  return add_any(std::move(parts), place.path);
}

int32_t SchemaCompiler::compile_type(const std::string& type, const Json& schema,
                                     const Place& place) {
  if (type == "string") return compile_string(schema, place);
  if (type == "integer" || type == "number")
    return compile_number(schema, type == "integer", place);
  if (type == "array") return compile_array(schema, place);
  if (type == "object") return compile_object(schema, place);
  const auto [known, made] = known_.try_emplace(type, 0);
  if (!made) return known->second;
  std::vector<std::string> texts = {"null"};
  if (type == "boolean") texts = {"true", "false"};
  return known->second = add_automaton(Automaton::of_strings(std::move(texts)), place);
}

int32_t SchemaCompiler::automaton(Automaton automaton, const std::string& name) {
  return add_automaton(std::move(automaton), {name, 0});
}

int32_t SchemaCompiler::compile_part(const Part& part) {
  document_ = &part.document;
  strict_ = part.strict;
  references_.clear();
  return compile(part.schema, {part.name, 0});
}

ItemSchemas SchemaCompiler::items_of(const Json& schema, const Place& place) {
  for (const char* keyword : {"items", "prefixItems", "additionalItems"}) {
    const auto found = schema.find(keyword);
    if (found != schema.end()) work_.spend_at(copy_work(*found), place.path);
  }
  return item_schemas(schema, place.path);
}

int32_t SchemaCompiler::compile_array(const Json& schema, const Place& place) {
  const ItemSchemas items = items_of(schema, place);
  GrammarNode node{.kind = Kind::kArray};
  node.min = bound(schema, "minItems", 0, place);
  node.max = bound(schema, "maxItems", kUnbounded, place);
  if (node.min > node.max) return add_any({}, place.path);
  Place part = place.at("prefixItems");
  for (size_t i = 0; i < items.first.size(); ++i) {
    Place one = part.at(std::to_string(i));
    one.depth = place.depth + 1;
    node.parts.push_back(compile(items.first[i], one));
  }
  if (items.others != Json(false)) node.rest = compile(items.others, place.at("items"));
  return add_node(std::move(node), place.path);
}

// The declared ones, then those that are required only.
std::vector<std::string> SchemaCompiler::names_of_members(const Json& declared,
                                                          const Json& required,
                                                          const Place& place) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    work_.spend_at(kNameWork + kNameByteWork * static_cast<int64_t>(name.size()), place.path);
    names.push_back(name);
  };
  for (const auto& [name, value] : declared.items()) add(name);
  std::set<std::string_view> further;
  for (const Json& name : required) {
    work_.spend_at(kNameWork, place.path);
    if (!declared.contains(name.text()) && further.insert(name.text()).second) add(name.text());
  }
  if (static_cast<int64_t>(names.size()) > limits_.properties) {
    refuse(place.path,
           fmt::format("it has {} properties, the limit is {}", names.size(), limits_.properties));
  }
  return names;
}

int32_t SchemaCompiler::compile_object(const Json& schema, const Place& place) {
  static const Json kNone = Json::object(), kAny = true;
  const auto keyword = [&](const char* name, const Json& otherwise) -> const Json& {
    const auto found = schema.find(name);
    return found == schema.end() ? otherwise : *found;
  };
  const Json &declared = keyword("properties", kNone), &required = keyword("required", kNone),
             &rest = keyword("additionalProperties", kAny);
  GrammarNode node{.kind = Kind::kObject};
  std::vector<std::string> names = names_of_members(declared, required, place);
  std::set<std::string_view> must;
  for (const Json& name : required) must.insert(name.text());
  if (rest != Json(false)) node.rest = compile(rest, place.at("additionalProperties"));
  const Place inside = place.at("properties");
  for (const auto& [name, value] : declared.items()) {
    Place one = inside.at(name);
    one.depth = place.depth + 1;
    node.properties.push_back({compile(value, one), must.contains(name)});
  }
  node.properties.resize(names.size(), {node.rest, true});
  std::vector<ByteTrie::Entry> keys;
  for (std::string& name : names) {
    name = json_quote(name);
    const std::string_view bare = std::string_view(name).substr(1, name.size() - 2);
    keys.push_back({bare, static_cast<int32_t>(keys.size())});
  }
  node.keys.build(std::move(keys));
  const int32_t count = static_cast<int32_t>(names.size());
  node.next_required.assign(count + 1, count);
  for (int32_t i = count - 1; i >= 0; --i) {
    node.next_required[i] = node.properties[i].required ? i : node.next_required[i + 1];
  }
  return add_node(std::move(node), place.path);
}

}  // namespace moraine
