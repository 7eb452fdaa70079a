// Strings and numbers of a schema: their patterns, lengths and ranges.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "grammar/number_range.h"
#include "grammar/pattern.h"
#include "grammar/schema.h"
#include "grammar/schema_keywords.h"

namespace moraine {

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

Automaton SchemaCompiler::both_of(const Automaton& a, const Automaton& b, const Place& place) {
  Automaton both;
  if (!Automaton::intersect(a, b, limits_.automaton_states, work_, &both)) {
    work_.spend_at(0, place.path);
    refuse(place.path, fmt::format("pattern, format and length together need more than {} states "
                                   "of an automaton; leave one of them out",
                                   limits_.automaton_states));
  }
  return both;
}

Automaton SchemaCompiler::compile_patterns(const std::vector<std::string>& patterns, TextForm form,
                                           const Place& place) {
  const PatternOptions options{.work = work_,
                               .form = form,
                               .place = "schema " + place.path,
                               .states_max = limits_.automaton_states};
  Automaton made = compile_pattern(patterns[0], options);
  for (size_t i = 1; i < patterns.size(); ++i)
    made = both_of(made, compile_pattern(patterns[i], options), place);
  return made;
}

Automaton SchemaCompiler::string_automaton(const Json& schema, const Place& place) {
  if (!schema.contains("pattern") &&
      (!schema.contains("format") ||
       pattern_of_format(schema["format"].get<std::string>()) == nullptr))
    return {};
  return compile_patterns(patterns_of(schema, place), TextForm::kJsonString, place);
}

SchemaCompiler::BareText SchemaCompiler::bare_text(const Json& schema, const Automaton& also,
                                                   const std::string& name) {
  const Place place{name, 0};
  check_keywords(schema, place);
  const std::string key = "bare " + json_text(schema);
  auto known = known_.find(key);
  if (known == known_.end())
    known = known_.emplace(key, compile_bare_text(schema, also, place)).first;
  const GrammarNode& node = out_->nodes[known->second];
  const bool ends = node.automaton >= 0 && out_->automata[node.automaton].accepting(0);
  return {known->second, ends && node.min == 0};
}

// The upper bound is counted as the text comes, and so is the lower one if nothing else says where the text may end.
int32_t SchemaCompiler::compile_bare_text(const Json& schema, const Automaton& also,
                                          const Place& place) {
  const int64_t min = bound(schema, "minLength", 0, place);
  const int64_t max = bound(schema, "maxLength", kUnbounded, place);
  if (min > max) return add_any({}, place.path);
  Json states = schema;
  states.erase("maxLength");
  states.erase("minLength");
  std::vector<std::string> patterns = patterns_of(states, place);
  const bool any = patterns.empty();
  if (any) patterns.emplace_back("^[^]*$");
  if (!any && min > 0) patterns.push_back("^[^]{" + std::to_string(min) + ",}$");
  const Automaton texts = both_of(compile_patterns(patterns, TextForm::kPlain, place), also, place);
  std::vector<int32_t> left = texts.characters_left();
  if (texts.empty() || left[0] > max) return add_any({}, place.path);
  const int32_t index = add_automaton(texts, place);
  GrammarNode& node = out_->nodes[index];
  if (any) node.min = min;
  node.max = max;
  if (max < kUnbounded) {
    node.characters_left_most = *std::max_element(left.begin(), left.end());
    node.characters_left = std::move(left);
  }
  return index;
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
  GrammarNode node{.kind = GrammarNode::Kind::kString};
  node.min = bound(schema, "minLength", 0, place);
  node.max = bound(schema, "maxLength", kUnbounded, place);
  if (node.min > node.max) return add_any({}, place.path);
  return known_[key] = add_node(std::move(node), place.path);
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
  Automaton made = compile_range(
      range,
      {.work = work_, .place = "schema " + place.path, .states_max = limits_.automaton_states});
  return known_[key] = add_automaton(std::move(made), place);
}

}  // namespace moraine
