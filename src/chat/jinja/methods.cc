// Methods of texts, lists and dicts; those that would change a value are refused, as Jinja's sandbox does.
#include <algorithm>

#include "chat/jinja/function.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text_filters.h"

namespace moraine::jinja {
namespace {

Value dict_get(Runtime& rt, const Value& self, const Bound& a) {
  const Value* found = find_key(rt, *self.dict, a.values[0]);
  if (found != nullptr) return *found;
  return a.given[1] ? a.values[1] : Value::none();
}

Value dict_keys(Runtime& rt, const Value& self, const Bound&) {
  List* out = rt.list();
  for (const auto& item : self.dict->items) rt.append(out, item.first);
  rt.step(static_cast<int64_t>(out->items.size()));
  return Value::of_list(out);
}

Value dict_values(Runtime& rt, const Value& self, const Bound&) {
  List* out = rt.list();
  for (const auto& item : self.dict->items) rt.append(out, item.second);
  rt.step(static_cast<int64_t>(out->items.size()));
  return Value::of_list(out);
}

Value dict_items(Runtime& rt, const Value& self, const Bound& a) {
  return find_filter("items")->run(rt, self, a);
}

// A list and a dict do not change, so each is its own copy.
Value same(Runtime&, const Value& self, const Bound&) { return self; }

Value list_count(Runtime& rt, const Value& self, const Bound& a) {
  int64_t times = 0;
  for (const Value& item : items_of(rt, self)) times += equal(rt, item, a.values[0]);
  return Value::of_int(times);
}

Value list_index(Runtime& rt, const Value& self, const Bound& a) {
  const std::vector<Value>& items = items_of(rt, self);
  for (size_t i = 0; i < items.size(); ++i) {
    if (equal(rt, items[i], a.values[0])) return Value::of_int(static_cast<int64_t>(i));
  }
  rt.fail("index(): the value is not in the list");
}

Value refuse(Runtime& rt, const Value& self, const Arguments&) {
  rt.fail("a method that would change a '{}': templates may not, as in Jinja's sandbox",
          kind_name(self));
}

template <bool kStart>
Value remove_end(Runtime& rt, const Value& self, const Bound& a) {
  return method_remove_end(rt, self, a, kStart);
}

#define MR_IS(name)                                                 \
  Value text_##name(Runtime& rt, const Value& self, const Bound&) { \
    return method_is(rt, self, #name);                              \
  }
MR_IS(islower)
MR_IS(isupper)
MR_IS(isspace)
MR_IS(isdigit)
MR_IS(isalnum)
MR_IS(isalpha)
#undef MR_IS

const BuiltIn kTextMethods[] = {
    {.name = "strip", .parameters = "| chars", .run = filter_trim},
    {.name = "lstrip", .parameters = "| chars", .run = method_lstrip},
    {.name = "rstrip", .parameters = "| chars", .run = method_rstrip},
    {.name = "split", .parameters = "| sep maxsplit", .run = method_split},
    {.name = "rsplit", .parameters = "| sep maxsplit", .run = method_rsplit},
    {.name = "splitlines", .parameters = "", .run = method_splitlines},
    {.name = "startswith", .parameters = "prefix", .run = method_startswith},
    {.name = "endswith", .parameters = "suffix", .run = method_endswith},
    {.name = "removeprefix", .parameters = "prefix", .run = remove_end<true>},
    {.name = "removesuffix", .parameters = "suffix", .run = remove_end<false>},
    {.name = "replace", .parameters = "old new | count", .run = filter_replace},
    {.name = "upper", .parameters = "", .run = filter_upper},
    {.name = "lower", .parameters = "", .run = filter_lower},
    {.name = "title", .parameters = "", .run = method_title},
    {.name = "capitalize", .parameters = "", .run = filter_capitalize},
    {.name = "find", .parameters = "sub", .run = method_find},
    {.name = "rfind", .parameters = "sub", .run = method_rfind},
    {.name = "index", .parameters = "sub", .run = method_index},
    {.name = "count", .parameters = "sub", .run = method_count},
    {.name = "join", .parameters = "iterable", .run = method_join},
    {.name = "format", .parameters = "*", .raw = method_format},
    {.name = "islower", .parameters = "", .run = text_islower},
    {.name = "isupper", .parameters = "", .run = text_isupper},
    {.name = "isspace", .parameters = "", .run = text_isspace},
    {.name = "isdigit", .parameters = "", .run = text_isdigit},
    {.name = "isalnum", .parameters = "", .run = text_isalnum},
    {.name = "isalpha", .parameters = "", .run = text_isalpha},
};

const BuiltIn kDictMethods[] = {
    {.name = "get", .parameters = "key | default", .run = dict_get},
    {.name = "items", .parameters = "", .run = dict_items},
    {.name = "keys", .parameters = "", .run = dict_keys},
    {.name = "values", .parameters = "", .run = dict_values},
    {.name = "copy", .parameters = "", .run = same},
    {.name = "clear", .parameters = "*", .raw = refuse},
    {.name = "pop", .parameters = "*", .raw = refuse},
    {.name = "popitem", .parameters = "*", .raw = refuse},
    {.name = "setdefault", .parameters = "*", .raw = refuse},
    {.name = "update", .parameters = "*", .raw = refuse},
};

const BuiltIn kListMethods[] = {
    {.name = "count", .parameters = "value", .run = list_count},
    {.name = "index", .parameters = "value", .run = list_index},
    {.name = "copy", .parameters = "", .run = same},
    {.name = "append", .parameters = "*", .raw = refuse},
    {.name = "clear", .parameters = "*", .raw = refuse},
    {.name = "extend", .parameters = "*", .raw = refuse},
    {.name = "insert", .parameters = "*", .raw = refuse},
    {.name = "pop", .parameters = "*", .raw = refuse},
    {.name = "remove", .parameters = "*", .raw = refuse},
    {.name = "reverse", .parameters = "*", .raw = refuse},
    {.name = "sort", .parameters = "*", .raw = refuse},
};

template <size_t kCount>
const BuiltIn* find_in(const BuiltIn (&table)[kCount], std::string_view name) {
  for (const BuiltIn& f : table) {
    if (f.name == name) return &f;
  }
  return nullptr;
}

}  // namespace

const BuiltIn* find_method(const Value& self, std::string_view name) {
  if (self.is(Kind::kText)) return find_in(kTextMethods, name);
  if (self.is(Kind::kDict)) return find_in(kDictMethods, name);
  if (self.is(Kind::kList)) return find_in(kListMethods, name);
  return nullptr;
}

}  // namespace moraine::jinja
