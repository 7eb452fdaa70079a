// Counts work and memory, and keeps what a render makes until it is over.
#include "chat/jinja/runtime.h"

#include <cmath>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "chat/jinja/function.h"
#include "chat/jinja/operators.h"

namespace moraine::jinja {

namespace {

constexpr int64_t kMessageBytes = 2000;  // of texts that a template or a message puts into an error

}  // namespace

void Runtime::fail(const std::string& message) const {
  throw_error(Code::kInvalidArgument, "chat template {} line {}: {}", name_, line_,
              printable(message, kMessageBytes));
}

void Runtime::fail_steps() const {
  fail("takes more than {} steps; a template of a model takes a few for each message",
       limits_.steps);
}

void Runtime::take(int64_t bytes) {
  // Both are far below half of what 64 bits hold.
  if (bytes > limits_.memory_bytes || bytes_ + bytes > limits_.memory_bytes) {
    fail("makes values of more than {} bytes", limits_.memory_bytes);
  }
  bytes_ += bytes;
}

Value Runtime::text(std::string text) {
  // A text that was counted while it grew is counted no more; its place is.
  take(sizeof(std::string));
  texts_.push_back(std::move(text));
  return Value::of_text(texts_.back());
}

List* Runtime::list(int64_t items_reserved) {
  take(static_cast<int64_t>(sizeof(List)) + items_reserved * int64_t{sizeof(Value)});
  List* list = &lists_.emplace_back();
  list->items.reserve(items_reserved);
  return list;
}

Dict* Runtime::dict() {
  take(sizeof(Dict));
  return &dicts_.emplace_back();
}

Namespace* Runtime::space() {
  take(sizeof(Namespace));
  return &spaces_.emplace_back();
}

Function* Runtime::function(const Function& f) {
  take(sizeof(Function));
  return &functions_.emplace_back(f);
}

Value Runtime::pair(const Value& a, const Value& b) {
  List* tuple = list(2);
  tuple->tuple = true;
  tuple->items = {a, b};
  return Value::of_list(tuple);
}

void Runtime::put(Dict* dict, const Value& key, const Value& value) {
  if (const Value* found = find_key(*this, *dict, key)) {
    *const_cast<Value*>(found) = value;  // of a dict that is still being made
    return;
  }
  take(2 * sizeof(Value));
  dict->items.emplace_back(key, value);
}

Value Runtime::import(const Json& json, int64_t depth) {
  if (depth > limits_.value_depth) fail("JSON nested deeper than {}", limits_.value_depth);
  switch (json.kind()) {
    case Json::Kind::kNull:
      return Value::none();
    case Json::Kind::kBoolean:
      return Value::of_bool(json.get<bool>());
    case Json::Kind::kInteger:
      return Value::of_int(json.get<int64_t>());
    case Json::Kind::kUnsigned: {
      const uint64_t n = json.get<uint64_t>();
      return n <= INT64_MAX ? Value::of_int(static_cast<int64_t>(n))
                            : Value::of_float(static_cast<double>(n));
    }
    case Json::Kind::kFloat:
      return Value::of_float(json.get<double>());
    case Json::Kind::kString: {
      const std::string& text = json.text();
      if (first_invalid_utf8(text) != -1) fail("a text of the conversation is not UTF-8");
      return Value::of_text(text);
    }
    case Json::Kind::kArray: {
      List* out = list(static_cast<int64_t>(json.size()));
      for (const Json& item : json) out->items.push_back(import(item, depth + 1));
      return Value::of_list(out);
    }
    case Json::Kind::kObject: {
      Dict* out = dict();
      take(static_cast<int64_t>(json.size()) * int64_t{2 * sizeof(Value)});
      for (const auto& [key, value] : json.items()) {
        if (first_invalid_utf8(key) != -1) fail("a key of the conversation is not UTF-8");
        out->items.emplace_back(Value::of_text(key), import(value, depth + 1));
      }
      return Value::of_dict(out);
    }
    default:
      fail("the conversation holds binary data");
  }
}

}  // namespace moraine::jinja
