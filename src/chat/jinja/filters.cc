// Filters of lists, dicts and any value, and the table of all filters.
#include <algorithm>
#include <cmath>
#include <string>

#include "chat/jinja/function.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/python_text.h"
#include "chat/jinja/text_filters.h"

namespace moraine::jinja {
namespace {

Value list_like(Runtime& rt, const std::vector<Value>& items) {
  List* list = rt.list(static_cast<int64_t>(items.size()));
  list->items = items;
  return Value::of_list(list);
}

// "function.name" or 0: an attribute of an attribute; at each step `otherwise` for what is not there.
Value path_of(Runtime& rt, Value value, const Value& path, const Value* otherwise = nullptr) {
  const auto or_default = [&](const Value& v) {
    return v.is(Kind::kUndefined) && otherwise != nullptr ? *otherwise : v;
  };
  if (!path.is(Kind::kText)) return or_default(item_of(rt, value, path));
  std::string_view rest = path.text;
  while (true) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    const bool number =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
    value = or_default(item_of(
        rt, value, number ? Value::of_int(std::stoll(std::string(part))) : Value::of_text(part)));
    if (dot == rest.size()) return value;
    rest.remove_prefix(dot + 1);
  }
}

Value folded(Runtime& rt, const Value& value) {
  if (!value.is(Kind::kText)) return value;
  rt.take(static_cast<int64_t>(value.text.size()));
  return rt.text(to_lower(value.text));
}

struct Keyed {
  Value key, value;
};

// Sorted by the keys, stably.
void sort_by_key(Runtime& rt, std::vector<Keyed>* items, bool reverse) {
  std::stable_sort(items->begin(), items->end(), [&](const Keyed& a, const Keyed& b) {
    rt.step();
    return reverse ? compare(rt, b.key, a.key) < 0 : compare(rt, a.key, b.key) < 0;
  });
}

Value filter_length(Runtime& rt, const Value& self, const Bound&) {
  return Value::of_int(length_of(rt, self));
}

Value filter_default(Runtime& rt, const Value& self, const Bound& a) {
  const bool missing = self.is(Kind::kUndefined) || (truth(a.values[1]) && !truth(self));
  if (!missing) return self;
  return a.given[0] ? a.values[0] : rt.text("");
}

Value filter_first(Runtime& rt, const Value& self, const Bound&) {
  const std::vector<Value>& items = items_of(rt, self);
  return items.empty() ? Value::undefined("the first item of nothing") : items.front();
}

Value filter_last(Runtime& rt, const Value& self, const Bound&) {
  const std::vector<Value>& items = items_of(rt, self);
  return items.empty() ? Value::undefined("the last item of nothing") : items.back();
}

Value filter_join(Runtime& rt, const Value& self, const Bound& a) {
  const std::string_view between = a.given[0] ? to_text(rt, a.values[0]) : "";
  TextBuilder out(rt);
  bool first = true;
  for (const Value& item : items_of(rt, self)) {
    if (!first) out.add(between);
    first = false;
    const bool part = a.given[1] && !a.values[1].is(Kind::kNone);
    out.add(to_text(rt, part ? path_of(rt, item, a.values[1]) : item));
  }
  rt.scan(static_cast<int64_t>(out.string().size()));
  return out.done();
}

Value filter_list(Runtime& rt, const Value& self, const Bound&) {
  return list_like(rt, items_of(rt, self));
}

Value filter_items(Runtime& rt, const Value& self, const Bound&) {
  List* out = rt.list();
  if (self.is(Kind::kUndefined)) return Value::of_list(out);
  if (!self.is(Kind::kDict)) rt.fail("items wants a dict, not '{}'", kind_name(self));
  for (const auto& [key, value] : self.dict->items) rt.append(out, rt.pair(key, value));
  rt.step(static_cast<int64_t>(out->items.size()));
  return Value::of_list(out);
}

Value filter_dictsort(Runtime& rt, const Value& self, const Bound& a) {
  if (!self.is(Kind::kDict)) rt.fail("dictsort wants a dict, not '{}'", kind_name(self));
  const std::string_view by = a.given[1] ? to_text(rt, a.values[1]) : "key";
  if (by != "key" && by != "value") rt.fail("dictsort sorts by \"key\" or \"value\"");
  std::vector<Keyed> items;
  rt.take(static_cast<int64_t>(self.dict->items.size() * sizeof(Keyed)));
  for (const auto& [key, value] : self.dict->items) {
    const Value& what = by == "key" ? key : value;
    items.push_back({truth(a.values[0]) ? what : folded(rt, what), rt.pair(key, value)});
  }
  sort_by_key(rt, &items, truth(a.values[2]));
  List* out = rt.list(static_cast<int64_t>(items.size()));
  for (const Keyed& item : items) out->items.push_back(item.value);
  return Value::of_list(out);
}

// The value by which sort, unique, min and max look at an item.
Value key_of(Runtime& rt, const Value& item, const Value& attribute, bool exact) {
  const bool part = !attribute.is(Kind::kUndefined) && !attribute.is(Kind::kNone);
  const Value key = part ? path_of(rt, item, attribute) : item;
  return exact ? key : folded(rt, key);
}

Value filter_sort(Runtime& rt, const Value& self, const Bound& a) {
  std::vector<Keyed> items;
  const std::vector<Value>& all = items_of(rt, self);
  rt.take(static_cast<int64_t>(all.size() * sizeof(Keyed)));
  for (const Value& item : all) {
    items.push_back({key_of(rt, item, a.values[2], truth(a.values[1])), item});
  }
  sort_by_key(rt, &items, truth(a.values[0]));
  List* out = rt.list(static_cast<int64_t>(items.size()));
  for (const Keyed& item : items) out->items.push_back(item.value);
  return Value::of_list(out);
}

Value filter_unique(Runtime& rt, const Value& self, const Bound& a) {
  List* keys = rt.list();
  List* out = rt.list();
  for (const Value& item : items_of(rt, self)) {
    const Value key = key_of(rt, item, a.values[1], truth(a.values[0]));
    if (contains(rt, Value::of_list(keys), key)) continue;
    rt.append(keys, key);
    rt.append(out, item);
  }
  return Value::of_list(out);
}

Value extreme(Runtime& rt, const Value& self, const Bound& a, int sign) {
  const std::vector<Value>& items = items_of(rt, self);
  if (items.empty()) return Value::undefined("the extreme of nothing");
  Value best = items[0], best_key = key_of(rt, best, a.values[1], truth(a.values[0]));
  for (const Value& item : items) {
    const Value key = key_of(rt, item, a.values[1], truth(a.values[0]));
    if (compare(rt, key, best_key) * sign > 0) {
      best = item;
      best_key = key;
    }
  }
  return best;
}

Value filter_min(Runtime& rt, const Value& self, const Bound& a) {
  return extreme(rt, self, a, -1);
}
Value filter_max(Runtime& rt, const Value& self, const Bound& a) { return extreme(rt, self, a, 1); }

Value filter_sum(Runtime& rt, const Value& self, const Bound& a) {
  Value total = a.given[1] ? a.values[1] : Value::of_int(0);
  const bool part = a.given[0] && !a.values[0].is(Kind::kNone);
  for (const Value& item : items_of(rt, self)) {
    total = arithmetic(rt, Op::kAdd, total, part ? path_of(rt, item, a.values[0]) : item);
  }
  return total;
}

Value filter_reverse(Runtime& rt, const Value& self, const Bound&) {
  std::vector<Value> items = items_of(rt, self);
  std::reverse(items.begin(), items.end());
  if (!self.is(Kind::kText)) return list_like(rt, items);
  TextBuilder out(rt);
  for (const Value& letter : items) out.add(letter.text);
  return out.done();
}

Value filter_batch(Runtime& rt, const Value& self, const Bound& a) {
  if (!a.values[0].is_whole() || a.values[0].whole() < 1) rt.fail("batch wants a number from 1");
  const int64_t size = a.values[0].whole();
  List* out = rt.list();
  List* part = nullptr;
  for (const Value& item : items_of(rt, self)) {
    if (part == nullptr || static_cast<int64_t>(part->items.size()) == size) {
      part = rt.list();
      rt.append(out, Value::of_list(part));
    }
    rt.append(part, item);
  }
  while (part != nullptr && a.given[1] && !a.values[1].is(Kind::kNone) &&
         static_cast<int64_t>(part->items.size()) < size) {
    rt.append(part, a.values[1]);
  }
  return Value::of_list(out);
}

Value filter_round(Runtime& rt, const Value& self, const Bound& a) {
  if (!self.is_number()) rt.fail("round wants a number, not '{}'", kind_name(self));
  const std::string_view method = a.given[1] ? to_text(rt, a.values[1]) : "common";
  const int64_t digits = a.given[0] && a.values[0].is_whole() ? a.values[0].whole() : 0;
  if (digits < -300 || digits > 300) rt.fail("round wants at most 300 digits");
  if (method == "common") {
    if (self.is_whole() && digits >= 0) return Value::of_int(self.whole());
    if (digits < 0) {
      const double unit = std::pow(10, -digits);
      const double rounded = std::nearbyint(self.number() / unit) * unit;
      if (self.is_whole() && std::abs(rounded) < 9e18) {
        return Value::of_int(static_cast<int64_t>(rounded));
      }
      return Value::of_float(rounded);
    }
    // Printing rounds the exact decimal value, half to even, as Python's round.
    return Value::of_float(
        std::strtod(fmt::format("{:.{}f}", self.real, static_cast<int>(digits)).c_str(), nullptr));
  }
  if (method != "ceil" && method != "floor") {
    rt.fail("round knows \"common\", \"ceil\" and \"floor\"");
  }
  const double unit = std::pow(10, digits), scaled = self.number() * unit;
  return Value::of_float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Value filter_abs(Runtime& rt, const Value& self, const Bound&) {
  if (!self.is_number()) rt.fail("abs wants a number, not '{}'", kind_name(self));
  if (self.is(Kind::kFloat)) return Value::of_float(std::abs(self.real));
  return self.whole() < 0 ? negate(rt, self) : Value::of_int(self.whole());
}

Value filter_safe(Runtime& rt, const Value& self, const Bound&) {
  return Value::of_text(to_text(rt, self));
}

Value filter_attr(Runtime& rt, const Value& self, const Bound& a) {
  // Attributes only: a key of a dict is none.
  const Value found = attribute_of(rt, self, to_text(rt, a.values[0]));
  if (self.is(Kind::kDict) && !found.is(Kind::kFunction)) return Value::undefined("an attribute");
  return found;
}

Value filter_tojson(Runtime& rt, const Value& self, const Bound& a) {
  JsonStyle style;
  std::string indent;
  style.ensure_ascii = truth(a.values[0]);
  if (a.given[1] && !a.values[1].is(Kind::kNone)) {
    style.lines = true;
    if (a.values[1].is(Kind::kText)) {
      indent = a.values[1].text;
    } else if (a.values[1].is_whole()) {
      const int64_t width = std::max<int64_t>(a.values[1].whole(), 0);
      rt.take(width);
      indent.assign(width, ' ');
    } else {
      rt.fail("tojson wants a number as indent, not '{}'", kind_name(a.values[1]));
    }
    style.indent = indent;
    style.item_separator = ",";
  }
  if (a.given[2] && !a.values[2].is(Kind::kNone)) {
    const std::vector<Value>& two = items_of(rt, a.values[2]);
    if (two.size() != 2 || !two[0].is(Kind::kText) || !two[1].is(Kind::kText)) {
      rt.fail("tojson wants two texts as separators");
    }
    style.item_separator = two[0].text;
    style.key_separator = two[1].text;
  }
  style.sort_keys = truth(a.values[3]);
  TextBuilder out(rt);
  add_json(&out, rt, self, style);
  return out.done();
}

Value filter_format(Runtime& rt, const Value& self, const Arguments& a) {
  if (!a.named.empty()) rt.fail("format with names is not known here");
  return percent_format(rt, to_text(rt, self), a.items);
}

// The arguments behind the first `skip`.
Arguments rest_of(const Arguments& a, size_t skip) {
  Arguments rest = a;
  rest.items.erase(rest.items.begin(), rest.items.begin() + skip);
  return rest;
}

Value filter_map(Runtime& rt, const Value& self, const Arguments& a) {
  List* out = rt.list();
  if (!truth(self)) return Value::of_list(out);  // none too, and nothing of the arguments is asked
  const auto named = [&](std::string_view name) -> const Value* {
    for (const auto& [key, value] : a.named) {
      if (key == name) return &value;
    }
    return nullptr;
  };
  const Value* attribute = named("attribute");
  const Value* otherwise = named("default");
  if (a.items.empty() && attribute == nullptr) rt.fail("map wants a filter or attribute=");
  const BuiltIn* filter = nullptr;
  if (attribute == nullptr) {
    filter = find_filter(to_text(rt, a.items[0]));
    if (filter == nullptr) fail_unknown(rt, "filter", to_text(rt, a.items[0]));
  }
  for (const Value& item : items_of(rt, self)) {
    if (filter != nullptr) {
      rt.append(out, call_built_in(rt, *filter, item, rest_of(a, 1)));
      continue;
    }
    rt.append(out, path_of(rt, item, *attribute, otherwise));
  }
  return Value::of_list(out);
}

// select and reject by a test of the item; selectattr and rejectattr of an attribute of it.
Value choose(Runtime& rt, const Value& self, const Arguments& a, bool attribute, bool keep) {
  const size_t skip = attribute ? 1 : 0;
  List* out = rt.list();
  if (!truth(self)) return Value::of_list(out);  // as in map
  if (a.items.size() < skip) rt.fail("selectattr wants the name of an attribute");
  const BuiltIn* test = nullptr;
  if (a.items.size() > skip) {
    const std::string_view name = to_text(rt, a.items[skip]);
    test = find_test(name);
    if (test == nullptr) fail_unknown(rt, "test", name);
  }
  const Arguments rest = test == nullptr ? Arguments() : rest_of(a, skip + 1);
  for (const Value& item : items_of(rt, self)) {
    const Value value = attribute ? path_of(rt, item, a.items[0]) : item;
    const bool holds = truth(test == nullptr ? value : call_built_in(rt, *test, value, rest));
    if (holds == keep) rt.append(out, item);
  }
  return Value::of_list(out);
}

Value filter_select(Runtime& rt, const Value& self, const Arguments& a) {
  return choose(rt, self, a, false, true);
}
Value filter_reject(Runtime& rt, const Value& self, const Arguments& a) {
  return choose(rt, self, a, false, false);
}
Value filter_selectattr(Runtime& rt, const Value& self, const Arguments& a) {
  return choose(rt, self, a, true, true);
}
Value filter_rejectattr(Runtime& rt, const Value& self, const Arguments& a) {
  return choose(rt, self, a, true, false);
}

Value filter_groupby(Runtime& rt, const Value& self, const Bound& a) {
  std::vector<Keyed> items;
  const std::vector<Value>& all = items_of(rt, self);
  rt.take(static_cast<int64_t>(all.size() * sizeof(Keyed)));
  for (const Value& item : all) {
    Value key = path_of(rt, item, a.values[0]);
    if (key.is(Kind::kUndefined) && a.given[1]) key = a.values[1];
    items.push_back({truth(a.values[2]) ? key : folded(rt, key), item});
  }
  sort_by_key(rt, &items, false);
  List* out = rt.list();
  List* group = nullptr;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i == 0 || !equal(rt, items[i].key, items[i - 1].key)) {
      group = rt.list();
      Value name = path_of(rt, items[i].value, a.values[0]);
      if (name.is(Kind::kUndefined) && a.given[1]) name = a.values[1];
      rt.append(out, rt.pair(name, Value::of_list(group)));
    }
    rt.append(group, items[i].value);
  }
  return Value::of_list(out);
}

const BuiltIn kFilters[] = {
    {.name = "abs", .parameters = "", .run = filter_abs},
    {.name = "attr", .parameters = "name", .run = filter_attr},
    {.name = "batch", .parameters = "linecount | fill_with", .run = filter_batch},
    {.name = "capitalize", .parameters = "", .run = filter_capitalize},
    {.name = "center", .parameters = "| width", .run = filter_center},
    {.name = "count", .parameters = "", .run = filter_length},
    {.name = "d", .parameters = "| default_value boolean", .run = filter_default},
    {.name = "default", .parameters = "| default_value boolean", .run = filter_default},
    {.name = "dictsort", .parameters = "| case_sensitive by reverse", .run = filter_dictsort},
    {.name = "first", .parameters = "", .run = filter_first},
    {.name = "float", .parameters = "| default", .run = filter_float},
    {.name = "format", .parameters = "*", .raw = filter_format},
    {.name = "groupby", .parameters = "attribute | default case_sensitive", .run = filter_groupby},
    {.name = "indent", .parameters = "| width first blank", .run = filter_indent},
    {.name = "int", .parameters = "| default base", .run = filter_int},
    {.name = "items", .parameters = "", .run = filter_items},
    {.name = "join", .parameters = "| d attribute", .run = filter_join},
    {.name = "last", .parameters = "", .run = filter_last},
    {.name = "length", .parameters = "", .run = filter_length},
    {.name = "list", .parameters = "", .run = filter_list},
    {.name = "lower", .parameters = "", .run = filter_lower},
    {.name = "map", .parameters = "*", .raw = filter_map},
    {.name = "max", .parameters = "| case_sensitive attribute", .run = filter_max},
    {.name = "min", .parameters = "| case_sensitive attribute", .run = filter_min},
    {.name = "reject", .parameters = "*", .raw = filter_reject},
    {.name = "rejectattr", .parameters = "*", .raw = filter_rejectattr},
    {.name = "replace", .parameters = "old new | count", .run = filter_replace},
    {.name = "reverse", .parameters = "", .run = filter_reverse},
    {.name = "round", .parameters = "| precision method", .run = filter_round},
    {.name = "safe", .parameters = "", .run = filter_safe},
    {.name = "select", .parameters = "*", .raw = filter_select},
    {.name = "selectattr", .parameters = "*", .raw = filter_selectattr},
    {.name = "sort", .parameters = "| reverse case_sensitive attribute", .run = filter_sort},
    {.name = "string", .parameters = "", .run = filter_string},
    {.name = "sum", .parameters = "| attribute start", .run = filter_sum},
    {.name = "title", .parameters = "", .run = filter_title},
    {.name = "tojson",
     .parameters = "| ensure_ascii indent separators sort_keys",
     .run = filter_tojson},
    {.name = "trim", .parameters = "| chars", .run = filter_trim},
    {.name = "unique", .parameters = "| case_sensitive attribute", .run = filter_unique},
    {.name = "upper", .parameters = "", .run = filter_upper},
    {.name = "wordcount", .parameters = "", .run = filter_wordcount},
};

}  // namespace

const BuiltIn* find_filter(std::string_view name) {
  for (const BuiltIn& f : kFilters) {
    if (f.name == name) return &f;
  }
  return nullptr;
}

}  // namespace moraine::jinja
