// The one file of this folder that knows simdjson.
#include "tokenizer/json_view.h"

#include <simdjson.h>

#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace moraine {
namespace {

namespace dom = simdjson::dom;

using Raw = std::array<std::byte, 16>;
static_assert(sizeof(dom::element) <= sizeof(Raw) && alignof(dom::element) <= 8);
static_assert(std::is_trivially_copyable_v<dom::element>);

dom::element element_of(const Raw& raw) {
  dom::element element;
  std::memcpy(static_cast<void*>(&element), raw.data(), sizeof(element));
  return element;
}

Raw raw_of(const dom::element& element) {
  Raw raw{};
  std::memcpy(raw.data(), static_cast<const void*>(&element), sizeof(element));
  return raw;
}

[[noreturn]] void wrong(const JsonView& view, std::string_view wanted) {
  throw_error(Code::kCorrupt, "read {}: it is not {}", view.place(), wanted);
}

template <class T>
T value_of(const JsonView& view, const Raw& raw, std::string_view wanted) {
  T value{};
  if (element_of(raw).get(value) != simdjson::SUCCESS) wrong(view, wanted);
  return value;
}

}  // namespace

bool JsonView::is_null() const { return element_of(raw_).is_null(); }
bool JsonView::is_text() const { return element_of(raw_).is_string(); }
bool JsonView::is_object() const { return element_of(raw_).is_object(); }
bool JsonView::is_array() const { return element_of(raw_).is_array(); }

std::string_view JsonView::text() const {
  return value_of<std::string_view>(*this, raw_, "a string");
}
int64_t JsonView::integer() const { return value_of<int64_t>(*this, raw_, "an integer"); }
double JsonView::number() const { return value_of<double>(*this, raw_, "a number"); }
bool JsonView::boolean() const { return value_of<bool>(*this, raw_, "true or false"); }

JsonView JsonView::at(std::string_view key) const {
  const dom::object object = value_of<dom::object>(*this, raw_, "an object");
  dom::element element;
  if (object.at_key(key).get(element) != simdjson::SUCCESS) {
    throw_error(Code::kCorrupt, "read {}: the member \"{}\" is missing", place(), key);
  }
  JsonView view = *this;
  view.raw_ = raw_of(element);
  view.key_ = key;
  view.index_ = kNoIndex;
  return view;
}

bool JsonView::find(std::string_view key, JsonView* value) const {
  const dom::object object = value_of<dom::object>(*this, raw_, "an object");
  dom::element element;
  if (object.at_key(key).get(element) != simdjson::SUCCESS || element.is_null()) return false;
  *value = at(key);
  return true;
}

void JsonView::members(const std::function<void(std::string_view, const JsonView&)>& each) const {
  const dom::object object = value_of<dom::object>(*this, raw_, "an object");
  JsonView view = *this;
  for (const auto field : object) {
    view.raw_ = raw_of(field.value);
    view.key_ = field.key;
    view.index_ = kNoIndex;
    each(field.key, view);
  }
}

int64_t JsonView::count() const {
  // Counted by walking: the library's own count stops at 2^24.
  int64_t total = 0;
  for (const auto element : value_of<dom::array>(*this, raw_, "an array")) {
    static_cast<void>(element);
    ++total;
  }
  return total;
}

void JsonView::elements(const std::function<void(int64_t, const JsonView&)>& each) const {
  const dom::array array = value_of<dom::array>(*this, raw_, "an array");
  JsonView view = *this;
  view.index_ = 0;
  for (const auto element : array) {
    view.raw_ = raw_of(element);
    each(view.index_, view);
    ++view.index_;
  }
}

std::string JsonView::place() const {
  std::string text = *name_;
  if (!key_.empty()) text += fmt::format(": \"{}\"", key_);
  if (index_ != kNoIndex) text += fmt::format(" element {}", index_);
  return text;
}

struct JsonText::Parser {
  dom::parser parser;
};

JsonText::JsonText(std::string_view json, const std::string& name)
    : name_(name), parser_(std::make_unique<Parser>()) {
  dom::element element;
  const simdjson::error_code error =
      parser_->parser.parse(simdjson::padded_string(json)).get(element);
  if (error != simdjson::SUCCESS) {
    throw_error(Code::kCorrupt, "read {}: it is not JSON: {}", name_,
                simdjson::error_message(error));
  }
  root_.raw_ = raw_of(element);
  root_.name_ = &name_;
}

JsonText::~JsonText() = default;

}  // namespace moraine
