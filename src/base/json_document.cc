// JSON through simdjson's document tree, the part of its interface that did not change.
#include "base/json_document.h"

#include <simdjson.h>

#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace moraine {

namespace dom = simdjson::dom;
using dom::element;
static_assert(sizeof(element) <= 16 && alignof(element) <= 8);
static_assert(std::is_trivially_copyable_v<element>);

struct JsonAccess {
  static element unwrap(const JsonValue& value) {
    element e;
    std::memcpy(static_cast<void*>(&e), value.raw_.data(), sizeof e);
    return e;
  }
  static void put(const element& e, JsonValue* value) {
    std::memcpy(value->raw_.data(), static_cast<const void*>(&e), sizeof e);
  }
};

namespace {

// In front of a message about `value`.
std::string prefix(const JsonValue& value) {
  const std::string place = value.place();
  return place.empty() ? "" : (value.named() ? "read " : "") + place + ": ";
}

template <class T>
T get(const JsonValue& value, const char* wanted) {
  const element e = JsonAccess::unwrap(value);
  T result{};
  if (e.get(result) == simdjson::SUCCESS) return result;
  throw_error(Code::kCorrupt, "{}found {}, wanted {}", prefix(value), value.kind(), wanted);
}

// How often `key` is there; the first goes to `found`.
int find_member(const JsonValue& object, std::string_view key, element* found) {
  int times = 0;
  for (const auto field : get<dom::object>(object, "an object")) {
    if (field.key == key && times++ == 0) *found = field.value;
  }
  return times;
}

}  // namespace

bool JsonValue::is_null() const { return JsonAccess::unwrap(*this).is_null(); }
bool JsonValue::is_text() const { return JsonAccess::unwrap(*this).is_string(); }
bool JsonValue::is_object() const { return JsonAccess::unwrap(*this).is_object(); }
bool JsonValue::is_array() const { return JsonAccess::unwrap(*this).is_array(); }

const char* JsonValue::kind() const {
  switch (JsonAccess::unwrap(*this).type()) {
    case dom::element_type::ARRAY:
      return "an array";
    case dom::element_type::OBJECT:
      return "an object";
    case dom::element_type::INT64:
      return "an integer";
    case dom::element_type::UINT64:
      return "a large integer";
    case dom::element_type::DOUBLE:
      return "a fraction";
    case dom::element_type::STRING:
      return "a string";
    case dom::element_type::BOOL:
      return "true or false";
    default:
      return "null";
  }
}

std::string_view JsonValue::text() const { return get<std::string_view>(*this, "a string"); }
int64_t JsonValue::integer() const { return get<int64_t>(*this, "an integer"); }
uint64_t JsonValue::unsigned_integer() const {
  return get<uint64_t>(*this, "an integer, not negative");
}
double JsonValue::number() const { return get<double>(*this, "a number"); }
bool JsonValue::boolean() const { return get<bool>(*this, "true or false"); }

JsonValue JsonValue::at(std::string_view key) const {
  element found;
  const int times = find_member(*this, key, &found);
  if (times != 1) {
    throw_error(Code::kCorrupt, "{}'{}' is {}", named() ? prefix(*this) : "", key,
                times == 0 ? "missing" : "given twice");
  }
  JsonValue value = *this;
  JsonAccess::put(found, &value);
  value.key_ = key;
  value.index_ = kNoIndex;
  return value;
}

bool JsonValue::find(std::string_view key, JsonValue* value) const {
  element found;
  if (find_member(*this, key, &found) == 0 || found.is_null()) return false;
  *value = at(key);
  return true;
}

void JsonValue::members(const std::function<void(std::string_view, const JsonValue&)>& each) const {
  JsonValue value = *this;
  value.index_ = kNoIndex;
  for (const auto field : get<dom::object>(*this, "an object")) {
    JsonAccess::put(field.value, &value);
    value.key_ = field.key;
    each(field.key, value);
  }
}

int64_t JsonValue::count() const {
  // Counted by walking: the library's own count stops at 2^24.
  int64_t total = 0;
  for (const auto item : get<dom::array>(*this, "an array")) {
    static_cast<void>(item);
    ++total;
  }
  return total;
}

void JsonValue::elements(const std::function<void(int64_t, const JsonValue&)>& each) const {
  JsonValue value = *this;
  value.index_ = 0;
  for (const auto item : get<dom::array>(*this, "an array")) {
    JsonAccess::put(item, &value);
    each(value.index_, value);
    ++value.index_;
  }
}

std::string JsonValue::place() const {
  std::string text = name_ == nullptr ? "" : *name_;
  if (!key_.empty()) text += fmt::format("{}'{}'", text.empty() ? "" : ": ", key_);
  if (index_ != kNoIndex) text += fmt::format(" element {}", index_);
  return text;
}

struct JsonDocument::State {
  dom::parser parser;
};

JsonDocument::JsonDocument() : state_(std::make_unique<State>()) {}

JsonDocument::JsonDocument(std::string_view text, const std::string& name)
    : name_(name), state_(std::make_unique<State>()) {
  parse(text);
}

JsonDocument::~JsonDocument() = default;

void JsonDocument::parse(std::string_view text) {
  element root;
  const simdjson::error_code code = state_->parser.parse(text.data(), text.size(), true).get(root);
  if (code == simdjson::MEMALLOC) throw std::bad_alloc();  // says nothing of the text
  if (code != simdjson::SUCCESS) {
    const bool number = code == simdjson::NUMBER_ERROR;  // the library does not say which
    throw_error(Code::kCorrupt, "{}not JSON{}: {}", name_.empty() ? "" : "read " + name_ + ": ",
                number ? ", or a number out of range" : "", simdjson::error_message(code));
  }
  root_ = JsonValue();
  root_.name_ = &name_;
  JsonAccess::put(root, &root_);
}

}  // namespace moraine
