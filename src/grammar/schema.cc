// From keywords to nodes: references, choices, then one function for each type.
#include "grammar/schema.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json_quote.h"
#include "base/printable.h"
#include "grammar/number_range.h"
#include "grammar/pattern.h"
#include "grammar/schema_disjoint.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_merge.h"

namespace moraine {
namespace {

using Kind = GrammarNode::Kind;

// Values of a schema that are copied while it is merged, all together: schemas that put allOf into
// allOf would have exponentially many.
constexpr int64_t kElementsMost = 1 << 21;

// Without notes, and without these.
Json without(const Json& schema, std::initializer_list<const char*> keywords) {
  Json rest = Json::object();
  for (const auto& [key, value] : schema.items()) {
    const auto same = [&, &key = key](const char* keyword) { return key == keyword; };
    const bool left_out = std::any_of(keywords.begin(), keywords.end(), same);
    if (!left_out && !is_schema_note(key) && !says_nothing(key, value)) rest[key] = value;
  }
  return rest;
}

int64_t count_elements(const Json& json) {
  int64_t count = 1;
  if (json.is_array() || json.is_object()) {
    for (const Json& part : json) count += count_elements(part);
  }
  return count;
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

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw_error(Code::kInvalidArgument, "schema {}: {}", path, what);
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

SchemaCompiler::Place SchemaCompiler::Place::at(const std::string& part) const {
  return {path.size() > 400 ? path : path + "/" + printable(part, 60), depth + 1};
}

int32_t SchemaCompiler::add_node(GrammarNode node) {
  if (static_cast<int64_t>(out_->nodes.size()) >= limits_.nodes) {
    throw_error(Code::kInvalidArgument, "schema: it has more than {} parts, which is the limit",
                limits_.nodes);
  }
  out_->nodes.push_back(std::move(node));
  return static_cast<int32_t>(out_->nodes.size()) - 1;
}

int32_t SchemaCompiler::add_any(std::vector<int32_t> parts) {
  return parts.size() == 1 ? parts[0] : add_node({.kind = Kind::kAny, .parts = std::move(parts)});
}

int32_t SchemaCompiler::add_automaton(Automaton automaton, const Place& place) {
  if (automaton.empty()) return add_any({});
  states_ += automaton.states();
  if (states_ > limits_.automaton_states_all) {
    refuse(place.path, fmt::format("patterns, formats, enums and ranges of numbers need more than "
                                   "{} states together, which is the limit",
                                   limits_.automaton_states_all));
  }
  out_->automata.push_back(std::move(automaton));
  return add_node(
      {.kind = Kind::kAutomaton, .automaton = static_cast<int32_t>(out_->automata.size()) - 1});
}

int32_t SchemaCompiler::literal(const std::string& text) {
  const int32_t index = add_automaton(Automaton::of_strings({text}), {"#", 0});
  out_->nodes[index].literal = true;
  return index;
}

int32_t SchemaCompiler::any_value() {
  const auto [known, made] = known_.try_emplace("any", 0);
  if (!made) return known->second;
  const int32_t any = known->second = add_node({.kind = Kind::kAny});
  const Place place{"#", 0};
  std::vector<int32_t> parts = {
      compile_type("string", Json::object(), place),  compile_type("number", Json::object(), place),
      compile_type("boolean", Json::object(), place), compile_type("null", Json::object(), place),
      add_node({.kind = Kind::kArray, .rest = any}),  any_object()};
  out_->nodes[any].parts = std::move(parts);
  return any;
}

int32_t SchemaCompiler::any_object() {
  const auto [known, made] = known_.try_emplace("object", 0);
  if (!made) return known->second;
  GrammarNode node{.kind = Kind::kObject, .next_required = {0}};
  node.keys.build({});
  const int32_t index = known->second = add_node(std::move(node));
  const int32_t any = any_value();
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

void SchemaCompiler::spend(const Json& schema, const Place& place) {
  elements_spent_ += count_elements(schema);
  if (elements_spent_ <= kElementsMost) return;
  refuse(place.path, "allOf and $ref within each other lead to too many schemas");
}

const Json& SchemaCompiler::referenced(const std::string& reference, const Place& place) const {
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
  const int32_t index = add_node({.kind = Kind::kAny});
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
  spend(schema, place);
  if (schema.is_boolean()) return schema;
  check_keywords(schema, place);
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
    out = merge_schemas(target, out, place.path);
  }
  if (schema.contains("allOf")) {
    for (size_t i = 0; i < schema["allOf"].size(); ++i) {
      const Place part = place.at("allOf").at(std::to_string(i));
      const Json all = resolve(schema["allOf"][i], {part.path, place.depth + 1});
      out = merge_schemas(out, all, part.path);
      spend(out, place);
    }
  }
  return out;
}

void SchemaCompiler::check_keywords(const Json& schema, const Place& place) const {
  const std::string problem = schema_problem(schema);
  if (!problem.empty()) refuse(place.path, problem);
}

int32_t SchemaCompiler::compile(const Json& schema, const Place& place) {
  if (place.depth > limits_.schema_depth) {
    refuse(place.path,
           fmt::format("schemas are more than {} deep, which is the limit", limits_.schema_depth));
  }
  if (schema.is_boolean()) return schema.get<bool>() ? any_value() : add_any({});
  check_keywords(schema, place);
  if (!schema.contains("nullable") || schema["nullable"] == Json(false)) {
    return compile_checked(schema, place);
  }
  Json rest = schema;
  rest.erase("nullable");
  return add_any({compile_checked(rest, place), compile_type("null", Json::object(), place)});
}

int32_t SchemaCompiler::compile_checked(const Json& schema, const Place& place) {
  const Json rest = without(schema, {"$defs", "definitions", "nullable"});
  if (rest.empty()) return any_value();
  if (rest.contains("$ref") && rest.size() == 1) {
    return compile_reference(rest["$ref"].get<std::string>(), place);
  }
  if (rest.contains("$ref") || rest.contains("allOf")) {
    const Json resolved = resolve(rest, place);
    return compile(resolved, {place.path, place.depth + 1});
  }
  if (rest.contains("anyOf")) return compile_choice(rest, "anyOf", place);
  if (rest.contains("oneOf")) return compile_choice(rest, "oneOf", place);
  if (rest.contains("enum") || rest.contains("const")) return compile_enum(rest, place);
  return compile_types(rest, place);
}

int32_t SchemaCompiler::compile_choice(const Json& schema, const char* keyword,
                                       const Place& place) {
  const Json beside = without(schema, {keyword});
  std::vector<int32_t> parts;
  for (size_t i = 0; i < schema[keyword].size(); ++i) {
    Place part = place.at(keyword).at(std::to_string(i));
    part.depth = place.depth + 1;
    if (beside.empty()) {
      parts.push_back(compile(schema[keyword][i], part));
    } else {
      spend(beside, part);
      const Json resolved = resolve(schema[keyword][i], part);
      parts.push_back(compile(merge_schemas(resolved, beside, part.path), part));
    }
  }
  if (strict_ && keyword == std::string_view("oneOf")) check_one_of(schema[keyword], place);
  return add_any(std::move(parts));
}

void SchemaCompiler::check_one_of(const Json& alternatives, const Place& place) const {
  DisjointSearch search{.referenced = [&](const Json& reference) -> const Json& {
    return referenced(reference.get<std::string>(), place);
  }};
  for (size_t i = 0; i < alternatives.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (disjoint_schemas(alternatives[i], alternatives[j], search)) continue;
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
  const Json others = without(schema, {"enum", "const", "type"});
  if (!others.empty()) {
    refuse(place.path, others.items().front().name +
                           " beside enum or const is not supported; "
                           "leave out the values that it forbids");
  }
  const std::vector<std::string> types = schema_types(schema, place.path);
  const Json values = schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"];
  if (static_cast<int64_t>(values.size()) > limits_.enum_entries) {
    refuse(place.path, fmt::format("the enum has {} values, the limit is {}", values.size(),
                                   limits_.enum_entries));
  }
  std::vector<std::string> texts;
  for (const Json& value : values) {
    const bool fits = std::any_of(types.begin(), types.end(),
                                  [&](const std::string& type) { return of_type(value, type); });
    if (fits) texts.push_back(json_text(value));
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
  return add_any(std::move(parts));
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

int64_t SchemaCompiler::bound(const Json& schema, const char* keyword, int64_t otherwise,
                              const Place& place) const {
  const auto found = schema.find(keyword);
  if (found == schema.end()) return otherwise;
  const bool number = found->is_number();
  const double value = number ? found->get<double>() : -1;
  if (!number || !(value >= 0) || value != std::floor(value)) {
    refuse(place.path, std::string(keyword) + " is " + printable(json_text(*found), 100) +
                           ", want a whole number from 0 on");
  }
  return value < 0x1p62 ? static_cast<int64_t>(value) : kUnbounded;
}

// Without a pattern or a format: a length alone.
std::vector<std::string> SchemaCompiler::patterns_of(const Json& schema, const Place& place) const {
  std::vector<std::string> patterns;
  if (schema.contains("pattern")) {
    patterns.push_back(schema["pattern"].get<std::string>());
    if (static_cast<int64_t>(patterns[0].size()) > limits_.pattern_bytes) {
      refuse(place.path, fmt::format("the pattern has {} bytes, the limit is {}",
                                     patterns[0].size(), limits_.pattern_bytes));
    }
  }
  if (schema.contains("format")) {
    const char* pattern = pattern_of_format(schema["format"].get<std::string>());
    if (pattern != nullptr) patterns.emplace_back(pattern);
  }
  const int64_t min = bound(schema, "minLength", 0, place);
  const int64_t max = bound(schema, "maxLength", kUnbounded, place);
  if (min > 0 || max < kUnbounded) {
    patterns.push_back("^[^]{" + std::to_string(min) + "," +
                       (max < kUnbounded ? std::to_string(max) : "") + "}$");
  }
  return patterns;
}

Automaton SchemaCompiler::both_of(const Automaton& a, const Automaton& b,
                                  const Place& place) const {
  Automaton both;
  if (!Automaton::intersect(a, b, limits_.automaton_states, &both)) {
    refuse(place.path, fmt::format("pattern, format and length together need more than {} states "
                                   "of an automaton; leave one of them out",
                                   limits_.automaton_states));
  }
  return both;
}

Automaton SchemaCompiler::compile_patterns(const std::vector<std::string>& patterns, TextForm form,
                                           const Place& place) const {
  const PatternOptions options{
      .form = form, .place = "schema " + place.path, .states_max = limits_.automaton_states};
  Automaton made = compile_pattern(patterns[0], options);
  for (size_t i = 1; i < patterns.size(); ++i)
    made = both_of(made, compile_pattern(patterns[i], options), place);
  return made;
}

Automaton SchemaCompiler::string_automaton(const Json& schema, const Place& place) const {
  if (!schema.contains("pattern") &&
      (!schema.contains("format") ||
       pattern_of_format(schema["format"].get<std::string>()) == nullptr))
    return {};
  return compile_patterns(patterns_of(schema, place), TextForm::kJsonString, place);
}

// The upper bound is counted as the text comes, and so is the lower one if nothing else says where the text may end.
SchemaCompiler::BareText SchemaCompiler::bare_text(const Json& schema, const Automaton& also,
                                                   const std::string& name) {
  const Place place{name, 0};
  check_keywords(schema, place);
  const int64_t min = bound(schema, "minLength", 0, place);
  const int64_t max = bound(schema, "maxLength", kUnbounded, place);
  if (min > max) return {add_any({}), false};
  Json states = schema;
  states.erase("maxLength");
  states.erase("minLength");
  std::vector<std::string> patterns = patterns_of(states, place);
  const bool any = patterns.empty();
  if (any) patterns.emplace_back("^[^]*$");
  if (!any && min > 0) patterns.push_back("^[^]{" + std::to_string(min) + ",}$");
  const Automaton texts = both_of(compile_patterns(patterns, TextForm::kPlain, place), also, place);
  std::vector<int32_t> left = texts.characters_left();
  if (texts.empty() || left[0] > max) return {add_any({}), false};
  const int32_t index = add_automaton(texts, place);
  GrammarNode& node = out_->nodes[index];
  if (any) node.min = min;
  node.max = max;
  if (max < kUnbounded) {
    node.characters_left_most = *std::max_element(left.begin(), left.end());
    node.characters_left = std::move(left);
  }
  return {index, texts.accepting(0) && node.min == 0};
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

int32_t SchemaCompiler::compile_string(const Json& schema, const Place& place) {
  const bool format = schema.contains("format") &&
                      pattern_of_format(schema["format"].get<std::string>()) != nullptr;
  std::string key = "string";
  for (const char* keyword : {"minLength", "maxLength", "pattern", "format"}) {
    if (schema.contains(keyword)) key += std::string(" ") + keyword + json_text(schema[keyword]);
  }
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  if (schema.contains("pattern") || format) {
    return known_[key] = add_automaton(string_automaton(schema, place), place);
  }
  GrammarNode node{.kind = Kind::kString};
  node.min = bound(schema, "minLength", 0, place);
  node.max = bound(schema, "maxLength", kUnbounded, place);
  if (node.min > node.max) return add_any({});
  return known_[key] = add_node(std::move(node));
}

int32_t SchemaCompiler::compile_number(const Json& schema, bool whole, const Place& place) {
  NumberRange range{.whole = whole};
  std::string key = whole ? "integer" : "number";
  const std::pair<const char*, Json*> bounds[] = {{"minimum", &range.least},
                                                  {"exclusiveMinimum", &range.above},
                                                  {"maximum", &range.most},
                                                  {"exclusiveMaximum", &range.below}};
  for (const auto& [keyword, value] : bounds) {
    if (!schema.contains(keyword)) continue;
    *value = schema[keyword];
    if (!value->is_number()) {
      refuse(place.path,
             std::string(keyword) + " is " + printable(json_text(*value), 100) + ", want a number");
    }
    key += std::string(" ") + keyword + json_text(*value);
  }
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  Automaton made = compile_range(range, "schema " + place.path, limits_.automaton_states);
  return known_[key] = add_automaton(std::move(made), place);
}

int32_t SchemaCompiler::compile_array(const Json& schema, const Place& place) {
  const ItemSchemas items = item_schemas(schema, place.path);
  GrammarNode node{.kind = Kind::kArray};
  node.min = bound(schema, "minItems", 0, place);
  node.max = bound(schema, "maxItems", kUnbounded, place);
  if (node.min > node.max) return add_any({});
  Place part = place.at("prefixItems");
  for (size_t i = 0; i < items.first.size(); ++i) {
    Place one = part.at(std::to_string(i));
    one.depth = place.depth + 1;
    node.parts.push_back(compile(items.first[i], one));
  }
  if (items.others != Json(false)) node.rest = compile(items.others, place.at("items"));
  return add_node(std::move(node));
}

int32_t SchemaCompiler::compile_object(const Json& schema, const Place& place) {
  const Json declared = schema.contains("properties") ? schema["properties"] : Json::object();
  const Json required = schema.contains("required") ? schema["required"] : Json::array();
  const Json rest =
      schema.contains("additionalProperties") ? schema["additionalProperties"] : Json(true);
  GrammarNode node{.kind = Kind::kObject};
  std::set<std::string> must;
  for (const Json& name : required) must.insert(name.get<std::string>());
  if (rest != Json(false)) node.rest = compile(rest, place.at("additionalProperties"));
  std::vector<std::string> names;
  const Place inside = place.at("properties");
  for (const auto& [name, value] : declared.items()) {
    Place one = inside.at(name);
    one.depth = place.depth + 1;
    node.properties.push_back({compile(value, one), must.erase(name) > 0});
    names.push_back(name);
  }
  for (const Json& name : required) {
    if (must.erase(name.get<std::string>()) == 0) continue;
    node.properties.push_back({node.rest, true});
    names.push_back(name.get<std::string>());
  }
  if (static_cast<int64_t>(names.size()) > limits_.properties) {
    refuse(place.path,
           fmt::format("it has {} properties, the limit is {}", names.size(), limits_.properties));
  }
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
  return add_node(std::move(node));
}

}  // namespace moraine
