// Functions that are there without a value in front: range, dict, namespace, cycler, joiner, raise_exception,
// strftime_now.
#include <ctime>
#include <string>

#include "chat/jinja/function.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/python_text.h"

namespace moraine::jinja {
namespace {

Value range(Runtime& rt, const Value&, const Bound& a) {
  int64_t part[3] = {0, 0, 1};
  for (int i = 0; i < 3; ++i) {
    if (!a.given[i]) continue;
    if (!a.values[i].is_whole()) rt.fail("range() wants whole numbers");
    part[i] = a.values[i].whole();
  }
  const int64_t begin = a.given[1] ? part[0] : 0, end = a.given[1] ? part[1] : part[0];
  const int64_t step = part[2];
  if (step == 0) rt.fail("the step of range() is 0");
  // In 128 bits nothing overflows.
  const __int128 span =
      step > 0 ? static_cast<__int128>(end) - begin : static_cast<__int128>(begin) - end;
  const __int128 stride = step > 0 ? step : -static_cast<__int128>(step);
  const __int128 count = span <= 0 ? 0 : (span + stride - 1) / stride;
  if (count > rt.limits().range_items) {
    rt.fail("range() of more than {} numbers", rt.limits().range_items);
  }
  List* out = rt.list(static_cast<int64_t>(count));
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) {
    out->items.push_back(Value::of_int(begin + i * step));
  }
  rt.step(static_cast<int64_t>(count));
  return Value::of_list(out);
}

Value make_dict(Runtime& rt, const Value&, const Arguments& a) {
  Dict* dict = rt.dict();
  if (a.items.size() > 1) rt.fail("dict() takes one dict or pairs");
  if (!a.items.empty() && a.items[0].is(Kind::kDict)) {
    for (const auto& [key, value] : a.items[0].dict->items) rt.put(dict, key, value);
  } else if (!a.items.empty()) {
    for (const Value& item : items_of(rt, a.items[0])) {
      const std::vector<Value>& two = items_of(rt, item);
      if (two.size() != 2) rt.fail("dict() wants pairs");
      rt.put(dict, two[0], two[1]);
    }
  }
  for (const auto& [name, value] : a.named) rt.put(dict, Value::of_text(name), value);
  return Value::of_dict(dict);
}

Value make_namespace(Runtime& rt, const Value& self, const Arguments& a) {
  const Value dict = make_dict(rt, self, a);
  Namespace* space = rt.space();
  for (const auto& [key, value] : dict.dict->items) {
    if (!key.is(Kind::kText)) rt.fail("namespace() wants names, not '{}'", kind_name(key));
    rt.take(sizeof(Value));
    space->items.emplace_back(key.text, value);
  }
  Value v;
  v.kind = Kind::kNamespace;
  v.space = space;
  return v;
}

Value raise_exception(Runtime& rt, const Value&, const Bound& a) {
  rt.fail("the template refuses this conversation: {}", to_text(rt, a.values[0]));
}

Value strftime_now(Runtime& rt, const Value&, const Bound& a) {
  const std::string format(to_text(rt, a.values[0]));
  constexpr size_t kMost = 1000;  // bytes of a date
  if (format.size() > kMost / 4) rt.fail("strftime_now() with a format of more than 250 bytes");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[kMost];
  const size_t bytes = std::strftime(text, sizeof text, format.c_str(), &local);
  rt.take(static_cast<int64_t>(bytes));
  return rt.text(std::string(text, bytes));
}

// joiner() gives nothing the first time it is called, then the text.
Value join_next(Runtime&, const Value& self, const Arguments&) {
  Value& used = self.function->state->items[0].second;
  if (truth(used)) return self.function->state->items[1].second;
  used = Value::of_bool(true);
  return Value::of_text("");
}

const BuiltIn kJoinNext = {.name = "joiner", .parameters = "*", .raw = join_next};

Value make_joiner(Runtime& rt, const Value&, const Bound& a) {
  Namespace* state = rt.space();
  state->items = {{"used", Value::of_bool(false)},
                  {"sep", a.given[0] ? a.values[0] : Value::of_text(", ")}};
  return Value::of_function(rt.function({.built_in = &kJoinNext, .state = state}));
}

// cycler(...).next() goes round; .current stays.
Value make_cycler(Runtime& rt, const Value&, const Arguments&) {
  rt.fail("cycler() is not known here; loop.cycle() is");
}

const BuiltIn kGlobals[] = {
    {.name = "range", .parameters = "start | stop step", .run = range},
    {.name = "dict", .parameters = "*", .raw = make_dict},
    {.name = "namespace", .parameters = "*", .raw = make_namespace},
    {.name = "raise_exception", .parameters = "message", .run = raise_exception},
    {.name = "strftime_now", .parameters = "format", .run = strftime_now},
    {.name = "joiner", .parameters = "| sep", .run = make_joiner},
    {.name = "cycler", .parameters = "*", .raw = make_cycler},
};

}  // namespace

const BuiltIn* find_global(std::string_view name) {
  for (const BuiltIn& f : kGlobals) {
    if (f.name == name) return &f;
  }
  return nullptr;
}

}  // namespace moraine::jinja
