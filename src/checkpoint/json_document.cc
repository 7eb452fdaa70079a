// JSON through simdjson's document tree, the part of its interface that did not change.
#include "checkpoint/json_document.h"

#include <simdjson.h>

#include <cstring>
#include <type_traits>

#include "base/error.h"
#include "base/json.h"

namespace moraine {

using simdjson::dom::element;
static_assert(sizeof(element) == 2 * sizeof(uint64_t));
static_assert(std::is_trivially_copyable_v<element>);

struct JsonAccess {
  static JsonValue wrap(const element& e) {
    JsonValue value;
    std::memcpy(value.place_, static_cast<const void*>(&e), sizeof e);
    return value;
  }
  static element unwrap(const JsonValue& value) {
    element e;
    std::memcpy(static_cast<void*>(&e), value.place_, sizeof e);
    return e;
  }
};

namespace {

const char* kind_name(const element& e) {
  switch (e.type()) {
    case simdjson::dom::element_type::ARRAY:
      return "an array";
    case simdjson::dom::element_type::OBJECT:
      return "an object";
    case simdjson::dom::element_type::INT64:
      return "an integer";
    case simdjson::dom::element_type::UINT64:
      return "a large integer";
    case simdjson::dom::element_type::DOUBLE:
      return "a fraction";
    case simdjson::dom::element_type::STRING:
      return "a string";
    case simdjson::dom::element_type::BOOL:
      return "a boolean";
    default:
      return "null";
  }
}

template <class T>
T get(const JsonValue& value, const char* wanted) {
  const element e = JsonAccess::unwrap(value);
  T result;
  if (e.get(result) != simdjson::SUCCESS) {
    throw_error(Code::kCorrupt, "found {}, wanted {}", kind_name(e), wanted);
  }
  return result;
}

// Runs `read` on the member, and names the member if that fails.
template <class Read>
auto named(const JsonValue& object, std::string_view key, const Read& read) {
  const JsonValue value = object.member(key);
  try {
    return read(value);
  } catch (const Error& error) {
    throw_error(error.code(), "'{}': {}", key, error.what());
  }
}

}  // namespace

std::string_view JsonValue::text() const { return get<std::string_view>(*this, "a string"); }
int64_t JsonValue::integer() const { return get<int64_t>(*this, "an integer"); }
uint64_t JsonValue::unsigned_integer() const {
  return get<uint64_t>(*this, "an integer, not negative");
}

std::vector<JsonValue> JsonValue::items() const {
  std::vector<JsonValue> result;
  for (const element item : get<simdjson::dom::array>(*this, "an array")) {
    result.push_back(JsonAccess::wrap(item));
  }
  return result;
}

std::vector<std::pair<std::string_view, JsonValue>> JsonValue::members() const {
  std::vector<std::pair<std::string_view, JsonValue>> result;
  for (const auto field : get<simdjson::dom::object>(*this, "an object")) {
    result.emplace_back(field.key, JsonAccess::wrap(field.value));
  }
  return result;
}

JsonValue JsonValue::member(std::string_view key) const {
  int found = 0;
  JsonValue result;
  for (const auto field : get<simdjson::dom::object>(*this, "an object")) {
    if (field.key != key) continue;
    result = JsonAccess::wrap(field.value);
    ++found;
  }
  if (found == 0) throw_error(Code::kCorrupt, "'{}' is missing", key);
  if (found > 1) throw_error(Code::kCorrupt, "'{}' is given twice", key);
  return result;
}

std::string_view JsonValue::text(std::string_view key) const {
  return named(*this, key, [](const JsonValue& v) { return v.text(); });
}
int64_t JsonValue::integer(std::string_view key) const {
  return named(*this, key, [](const JsonValue& v) { return v.integer(); });
}
uint64_t JsonValue::unsigned_integer(std::string_view key) const {
  return named(*this, key, [](const JsonValue& v) { return v.unsigned_integer(); });
}
std::vector<JsonValue> JsonValue::items(std::string_view key) const {
  return named(*this, key, [](const JsonValue& v) { return v.items(); });
}
std::vector<std::pair<std::string_view, JsonValue>> JsonValue::members(std::string_view key) const {
  return named(*this, key, [](const JsonValue& v) { return v.members(); });
}

struct JsonDocument::State {
  simdjson::dom::parser parser;
};

JsonDocument::JsonDocument(std::string_view text) : state_(std::make_unique<State>()) {
  element root;
  const simdjson::error_code code = state_->parser.parse(text.data(), text.size(), true).get(root);
  if (code != simdjson::SUCCESS) {
    throw_error(Code::kCorrupt, "not JSON: {}", simdjson::error_message(code));
  }
  root_ = JsonAccess::wrap(root);
}

JsonDocument::~JsonDocument() = default;

std::string json_quote(std::string_view text) {
  try {
    return Json(text).dump();
  } catch (const Json::exception& error) {
    throw_error(Code::kInvalidArgument, "write a name or text as JSON: {}", error.what());
  }
}

}  // namespace moraine
