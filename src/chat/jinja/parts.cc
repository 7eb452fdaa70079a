// Attributes, items and slices of values, in the order in which Jinja looks for them.
#include <algorithm>
#include <string>

#include "base/utf8.h"
#include "chat/jinja/function.h"
#include "chat/jinja/loop_state.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/python_text.h"

namespace moraine::jinja {
namespace {

Value missing(Runtime& rt, const Value& value, std::string_view name) {
  return Value::undefined(
      rt.text(fmt::format("'{}' of a '{}'", name.substr(0, 100), kind_name(value))).text);
}

// What Python's getattr finds. False if nothing.
bool find_attribute(Runtime& rt, const Value& value, std::string_view name, Value* out) {
  if (value.is(Kind::kNamespace)) {
    for (const auto& [key, item] : value.space->items) {
      if (key == name) {
        *out = item;
        return true;
      }
    }
    return false;
  }
  if (value.is(Kind::kLoop)) return loop_attribute(rt, *value.loop, value, name, out);
  const BuiltIn* method = find_method(value, name);
  if (method == nullptr) return false;
  *out = Value::of_function(rt.function({.built_in = method, .self = value}));
  return true;
}

// What value[key] finds. False if nothing.
bool find_item(Runtime& rt, const Value& value, const Value& key, Value* out) {
  if (value.is(Kind::kDict)) {
    if (key.is(Kind::kUndefined)) return false;
    const Value* found = find_key(rt, *value.dict, key);
    if (found != nullptr) *out = *found;
    return found != nullptr;
  }
  if (!key.is_whole() || (!value.is(Kind::kList) && !value.is(Kind::kText))) return false;
  const int64_t length = length_of(rt, value);
  int64_t index = key.whole();
  if (index < 0) index += length;
  if (index < 0 || index >= length) return false;
  *out = value.is(Kind::kList) ? value.list->items[index]
                               : Value::of_text(characters(value.text, index, index + 1));
  return true;
}

// A bound of a slice as Python clips it: for a step forwards in [0, length], backwards in [-1, length - 1].
int64_t clip(Runtime& rt, const Value& bound, int64_t length, bool forwards, int64_t otherwise) {
  if (bound.is(Kind::kUndefined) || bound.is(Kind::kNone)) return otherwise;
  if (!bound.is_whole()) rt.fail("a slice wants whole numbers, not '{}'", kind_name(bound));
  int64_t index = bound.whole();
  if (index < 0) index = index < -length ? -1 - length : index;
  if (index < 0) index += length;
  return forwards ? std::clamp<int64_t>(index, 0, length)
                  : std::clamp<int64_t>(index, -1, length - 1);
}

}  // namespace

Value attribute_of(Runtime& rt, const Value& value, std::string_view name) {
  need_defined(rt, value);
  Value out;
  if (find_attribute(rt, value, name, &out)) return out;
  if (find_item(rt, value, Value::of_text(name), &out)) return out;
  return missing(rt, value, name);
}

Value item_of(Runtime& rt, const Value& value, const Value& key) {
  need_defined(rt, value);
  Value out;
  if (find_item(rt, value, key, &out)) return out;
  if (key.is(Kind::kText) && find_attribute(rt, value, key.text, &out)) return out;
  if (key.is(Kind::kText)) return missing(rt, value, key.text);
  if (key.is_whole()) return missing(rt, value, fmt::format("[{}]", key.whole()));
  return missing(rt, value, "an item");
}

Value slice_of(Runtime& rt, const Value& value, const Value& begin, const Value& end,
               const Value& step) {
  need_defined(rt, value);
  if (!value.is(Kind::kList) && !value.is(Kind::kText)) {
    return missing(rt, value, "a slice");
  }
  int64_t stride = 1;
  if (!step.is(Kind::kUndefined) && !step.is(Kind::kNone)) {
    if (!step.is_whole()) rt.fail("a slice wants whole numbers, not '{}'", kind_name(step));
    stride = step.whole();
  }
  if (stride == 0) rt.fail("the step of a slice is 0");
  const int64_t length = length_of(rt, value);
  stride = std::clamp<int64_t>(stride, -length - 1, length + 1);
  const bool forwards = stride > 0;
  const int64_t first = clip(rt, begin, length, forwards, forwards ? 0 : length - 1);
  const int64_t last = clip(rt, end, length, forwards, forwards ? length : -1);
  if (value.is(Kind::kText) && stride == 1) {
    return Value::of_text(characters(value.text, first, std::max(first, last)));
  }
  const std::vector<Value>& items = items_of(rt, value);
  List* out = rt.list();
  out->tuple = value.is(Kind::kList) && value.list->tuple;
  for (int64_t i = first; forwards ? i < last : i > last; i += stride) {
    rt.step();
    rt.append(out, items[i]);
  }
  if (value.is(Kind::kList)) return Value::of_list(out);
  TextBuilder text(rt);
  for (const Value& letter : out->items) text.add(letter.text);
  return text.done();
}

}  // namespace moraine::jinja
