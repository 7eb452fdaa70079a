// Json fields: checks with messages that say what is allowed.
#include "server/json_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/nearest.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "server/request_error.h"

namespace moraine {
namespace {

[[noreturn]] void too_many(const char* what, int64_t limit) {
  throw RequestError(fmt::format("the request's body has more than {} {}", limit, what), "");
}

// Where the string that begins at `i` has its last quote.
size_t end_of_string(const std::string& body, size_t i) {
  for (++i; i < body.size() && body[i] != '"'; ++i) {
    if (body[i] == '\\') ++i;
  }
  return i;
}

// Depth, values, and members of an object, before anything is built of them. Strings are skipped;
// whether the rest is JSON, the parser says.
void check_extent(const std::string& body, const Limits& limits) {
  constexpr int64_t kArray = INT64_MIN;  // too far from the limit to reach it
  std::vector<int64_t> members;          // of each object that is open
  int64_t values = 1;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (c == '"') {
      i = end_of_string(body, i);
    } else if (c == '[' || c == '{') {
      ++values;
      members.push_back(c == '[' ? kArray : 1);
      if (static_cast<int64_t>(members.size()) > limits.json_depth)
        too_many("arrays and objects in each other", limits.json_depth);
    } else if ((c == ']' || c == '}') && !members.empty()) {
      members.pop_back();
    } else if (c == ',') {
      ++values;
      if (!members.empty() && ++members.back() > limits.json_members)
        too_many("members in one object", limits.json_members);
    }
    if (values > limits.json_values) too_many("values", limits.json_values);
  }
}

std::string shown(const Json& value) {
  if (value.is_array() || value.is_object()) return kind_of(value);
  return printable(json_text(value), 64);
}

}  // namespace

const char* kind_of(const Json& value) {
  if (value.is_string()) return "a string";
  if (value.is_number_integer()) return "an integer";
  if (value.is_number()) return "a number";
  if (value.is_boolean()) return "a boolean";
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  return "null";
}

Json parse_body(const std::string& body, const Limits& limits) {
  const int64_t bad = first_invalid_utf8(body);
  if (bad >= 0)
    throw RequestError(fmt::format("the request's body is not UTF-8 at byte {}", bad), "");
  check_extent(body, limits);
  Json json;
  try {
    json = parse_json(body, "the request's body");
  } catch (const Error& e) {
    throw RequestError(e.what(), "");
  }
  if (!json.is_object())
    throw RequestError(fmt::format("the request's body is {}; wanted a JSON object", kind_of(json)),
                       "");
  return json;
}

JsonFields::JsonFields(const Json& object, std::string place)
    : object_(object), place_(std::move(place)) {
  if (!object_.is_object())
    throw RequestError(fmt::format("'{}' is {}; wanted an object", place_, kind_of(object_)),
                       place_);
}

std::string JsonFields::place_of(const std::string& name) const {
  return place_.empty() ? name : place_ + "." + name;
}

void JsonFields::fail(const std::string& name, const std::string& message) const {
  throw RequestError(fmt::format("'{}' {}", place_of(name), message), place_of(name));
}

const Json* JsonFields::find(const std::string& name) {
  known_.push_back(name);
  const auto at = object_.find(name);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

const Json& JsonFields::need(const std::string& name) {
  const Json* value = find(name);
  if (value == nullptr) fail(name, "is missing");
  return *value;
}

int64_t JsonFields::integer(const std::string& name, int64_t standard, int64_t min, int64_t max) {
  const Json* value = find(name);
  if (value == nullptr) return standard;
  const std::string wanted = fmt::format("wanted an integer from {} to {}", min, max);
  double number = 0;
  if (value->is_number()) number = value->get<double>();
  const bool whole =
      value->is_number_integer() ||
      (value->is_number() &&
       number == static_cast<double>(static_cast<int64_t>(std::clamp(number, -9e18, 9e18))));
  if (!whole) fail(name, fmt::format("is {}; {}", shown(*value), wanted));
  const bool above = value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX;
  if (!value->is_number_integer() && (number < -9e18 || number > 9e18))
    fail(name, fmt::format("is {}; {}", shown(*value), wanted));
  if (above || value->get<int64_t>() < min || value->get<int64_t>() > max)
    fail(name, fmt::format("is {}; {}", shown(*value), wanted));
  return value->get<int64_t>();
}

double JsonFields::number(const std::string& name, double standard, double min, double max) {
  const Json* value = find(name);
  if (value == nullptr) return standard;
  const double number = value->is_number() ? value->get<double>() : min - 1;
  if (!(number >= min && number <= max))
    fail(name, fmt::format("is {}; wanted a number from {} to {}", shown(*value), min, max));
  return number;
}

bool JsonFields::boolean(const std::string& name, bool standard) {
  const Json* value = find(name);
  if (value == nullptr) return standard;
  if (!value->is_boolean()) fail(name, fmt::format("is {}; wanted true or false", shown(*value)));
  return value->get<bool>();
}

std::string JsonFields::text(const std::string& name, const std::string& standard) {
  const Json* value = find(name);
  if (value == nullptr) return standard;
  if (!value->is_string()) fail(name, fmt::format("is {}; wanted a string", shown(*value)));
  return value->get<std::string>();
}

std::string JsonFields::choice(const std::string& name, const std::string& standard,
                               std::initializer_list<const char*> allowed) {
  const std::string word = text(name, standard);
  std::string list;
  for (const char* each : allowed) {
    if (word == each) return word;
    list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", each);
  }
  if (word == standard) return word;
  fail(name, fmt::format("is {}; wanted one of {}", shown(word), list));
}

std::vector<std::string> JsonFields::texts(const std::string& name, int64_t most) {
  const Json* value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array() || static_cast<int64_t>(value->size()) > most)
    fail(name, fmt::format("is {}; wanted a string or an array of at most {} strings",
                           value->is_array() ? "longer" : shown(*value), most));
  std::vector<std::string> all;
  for (const Json& each : *value) {
    if (!each.is_string())
      fail(fmt::format("{}[{}]", name, all.size()),
           fmt::format("is {}; wanted a string", shown(each)));
    all.push_back(each.get<std::string>());
  }
  return all;
}

const Json* JsonFields::array(const std::string& name, int64_t most) {
  const Json* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) fail(name, fmt::format("is {}; wanted an array", shown(*value)));
  if (static_cast<int64_t>(value->size()) > most)
    fail(name, fmt::format("has {} elements; at most {} are allowed", value->size(), most));
  return value;
}

const Json* JsonFields::object(const std::string& name) {
  const Json* value = find(name);
  if (value != nullptr && !value->is_object())
    fail(name, fmt::format("is {}; wanted an object", shown(*value)));
  return value;
}

void JsonFields::ignore(std::initializer_list<const char*> names) {
  known_.insert(known_.end(), names.begin(), names.end());
}

void JsonFields::refuse(const std::string& name, const char* why, const Json& harmless) {
  const Json* value = find(name);
  if (value != nullptr && *value != harmless) fail(name, fmt::format("is not supported: {}", why));
}

void JsonFields::done() const {
  for (const auto& [name, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    const std::string seen = printable(name, 64);
    throw RequestError(
        fmt::format("'{}' is no field that this endpoint knows{}", place_of(seen),
                    did_you_mean(name.substr(0, 64), known_,
                                 {.quote = "'", .then = "docs/serving.md lists its fields"})),
        place_of(seen), "unknown_parameter");
  }
}

}  // namespace moraine
