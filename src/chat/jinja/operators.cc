// Numbers, comparisons and access to parts; every loop over a value's parts is paid for in steps.
#include "chat/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/utf8.h"
#include "chat/jinja/function.h"
#include "chat/jinja/python_text.h"

namespace moraine::jinja {
namespace {

[[noreturn]] void fail_operands(Runtime& rt, const char* sign, const Value& a, const Value& b) {
  need_defined(rt, a);
  need_defined(rt, b);
  rt.fail("unsupported operands for {}: '{}' and '{}'", sign, kind_name(a), kind_name(b));
}

[[noreturn]] void fail_overflow(Runtime& rt) { rt.fail("a number above 64 bits"); }

Value repeat(Runtime& rt, const Value& value, int64_t times) {
  times = std::max<int64_t>(times, 0);
  const int64_t length = value.is(Kind::kText) ? static_cast<int64_t>(value.text.size())
                                               : static_cast<int64_t>(value.list->items.size());
  if (length > 0 && times > rt.limits().memory_bytes / length) rt.take(INT64_MAX / 4);
  if (value.is(Kind::kText)) {
    TextBuilder out(rt);
    rt.take(length * times);
    out.string().reserve(length * times);
    for (int64_t i = 0; length > 0 && i < times; ++i) out.string() += value.text;
    rt.scan(length * times);
    return out.done();
  }
  List* out = rt.list(length * times);
  out->tuple = value.list->tuple;
  for (int64_t i = 0; length > 0 && i < times; ++i) {
    out->items.insert(out->items.end(), value.list->items.begin(), value.list->items.end());
  }
  rt.step(length * times);
  return Value::of_list(out);
}

Value join_two(Runtime& rt, const Value& a, const Value& b) {
  if (a.is(Kind::kText)) {
    TextBuilder out(rt);
    out.add(a.text);
    out.add(b.text);
    rt.scan(static_cast<int64_t>(out.string().size()));
    return out.done();
  }
  List* out = rt.list(static_cast<int64_t>(a.list->items.size() + b.list->items.size()));
  out->tuple = a.list->tuple;
  out->items = a.list->items;
  out->items.insert(out->items.end(), b.list->items.begin(), b.list->items.end());
  rt.step(static_cast<int64_t>(out->items.size()));
  return Value::of_list(out);
}

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

Value power(Runtime& rt, const Value& a, const Value& b) {
  if (!a.is_whole() || !b.is_whole() || b.whole() < 0) {
    if (a.number() == 0 && b.number() < 0) rt.fail("0 to a negative power");
    const double result = std::pow(a.number(), b.number());
    if (std::isnan(result)) rt.fail("a power that is no real number");
    return Value::of_float(result);
  }
  int64_t result = 1, base = a.whole();
  for (int64_t exponent = b.whole(); exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) fail_overflow(rt);
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) fail_overflow(rt);
  }
  return Value::of_int(result);
}

Value whole_arithmetic(Runtime& rt, Op op, int64_t x, int64_t y) {
  int64_t result = 0;
  switch (op) {
    case Op::kAdd:
      if (__builtin_add_overflow(x, y, &result)) fail_overflow(rt);
      return Value::of_int(result);
    case Op::kSubtract:
      if (__builtin_sub_overflow(x, y, &result)) fail_overflow(rt);
      return Value::of_int(result);
    case Op::kMultiply:
      if (__builtin_mul_overflow(x, y, &result)) fail_overflow(rt);
      return Value::of_int(result);
    default:
      break;
  }
  if (y == 0) rt.fail("division by zero");
  if (op == Op::kDivide) return Value::of_float(static_cast<double>(x) / static_cast<double>(y));
  if (x == INT64_MIN && y == -1) fail_overflow(rt);
  const int64_t quotient = floor_divide(x, y);
  return Value::of_int(op == Op::kFloorDivide ? quotient : x - quotient * y);
}

Value real_arithmetic(Runtime& rt, Op op, double x, double y) {
  switch (op) {
    case Op::kAdd:
      return Value::of_float(x + y);
    case Op::kSubtract:
      return Value::of_float(x - y);
    case Op::kMultiply:
      return Value::of_float(x * y);
    default:
      break;
  }
  if (y == 0) rt.fail("division by zero");
  if (op == Op::kDivide) return Value::of_float(x / y);
  if (op == Op::kFloorDivide) return Value::of_float(std::floor(x / y));
  const double rest = std::fmod(x, y);
  return Value::of_float(rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest);
}

const char* sign_of(Op op) {
  static const char* const kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSigns[static_cast<int>(op)];
}

}  // namespace

const char* kind_name(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return "str";
    case Kind::kList:
      return value.list->tuple ? "tuple" : "list";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kFunction:
      return "function";
    case Kind::kLoop:
      return "loop";
  }
  return "value";
}

void fail_undefined(Runtime& rt, const Value& value) {
  rt.fail("{} is undefined", value.text.empty() ? "a value" : std::string(value.text));
}

bool truth(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean;
    case Kind::kInt:
      return value.integer != 0;
    case Kind::kFloat:
      return value.real != 0;
    case Kind::kText:
      return !value.text.empty();
    case Kind::kList:
      return !value.list->items.empty();
    case Kind::kDict:
      return !value.dict->items.empty();
    default:
      return true;
  }
}

Value arithmetic(Runtime& rt, Op op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (op == Op::kPower) return power(rt, a, b);
    if (a.is_whole() && b.is_whole()) return whole_arithmetic(rt, op, a.whole(), b.whole());
    return real_arithmetic(rt, op, a.number(), b.number());
  }
  const bool texts = a.is(Kind::kText) && b.is(Kind::kText);
  const bool lists = a.is(Kind::kList) && b.is(Kind::kList) && a.list->tuple == b.list->tuple;
  if (op == Op::kAdd && (texts || lists)) return join_two(rt, a, b);
  const auto repeats = [](const Value& v) { return v.is(Kind::kText) || v.is(Kind::kList); };
  if (op == Op::kMultiply && repeats(a) && b.is_whole()) return repeat(rt, a, b.whole());
  if (op == Op::kMultiply && repeats(b) && a.is_whole()) return repeat(rt, b, a.whole());
  if (op == Op::kModulo && a.is(Kind::kText)) {
    need_defined(rt, b);
    const bool tuple = b.is(Kind::kList) && b.list->tuple;
    return percent_format(rt, a.text, tuple ? b.list->items : std::vector<Value>{b});
  }
  fail_operands(rt, sign_of(op), a, b);
}

Value negate(Runtime& rt, const Value& a) {
  need_defined(rt, a);
  if (a.is(Kind::kFloat)) return Value::of_float(-a.real);
  if (!a.is_whole()) rt.fail("bad operand for unary -: '{}'", kind_name(a));
  return whole_arithmetic(rt, Op::kSubtract, 0, a.whole());
}

bool equal(Runtime& rt, const Value& a, const Value& b, int64_t depth) {
  if (depth > rt.limits().value_depth) rt.fail("values nested too deep to compare");
  if (a.is_number() && b.is_number()) {
    return a.is_whole() && b.is_whole() ? a.whole() == b.whole() : a.number() == b.number();
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kText:
      rt.scan(static_cast<int64_t>(std::min(a.text.size(), b.text.size())));
      return a.text == b.text;
    case Kind::kList: {
      const std::vector<Value>&x = a.list->items, &y = b.list->items;
      if (x.size() != y.size() || a.list->tuple != b.list->tuple) return false;
      for (size_t i = 0; i < x.size(); ++i) {
        rt.step();
        if (!equal(rt, x[i], y[i], depth + 1)) return false;
      }
      return true;
    }
    case Kind::kDict: {
      if (a.dict->items.size() != b.dict->items.size()) return false;
      for (const auto& [key, value] : a.dict->items) {
        const Value* other = find_key(rt, *b.dict, key);
        if (other == nullptr || !equal(rt, value, *other, depth + 1)) return false;
      }
      return true;
    }
    case Kind::kNamespace:
      return a.space == b.space;
    case Kind::kFunction:
      return a.function == b.function;
    case Kind::kLoop:
      return a.loop == b.loop;
    default:
      return true;  // none, undefined
  }
}

int compare(Runtime& rt, const Value& a, const Value& b, int64_t depth) {
  if (depth > rt.limits().value_depth) rt.fail("values nested too deep to compare");
  if (a.is_number() && b.is_number()) {
    if (a.is_whole() && b.is_whole()) return (a.whole() > b.whole()) - (a.whole() < b.whole());
    return (a.number() > b.number()) - (a.number() < b.number());
  }
  if (a.is(Kind::kText) && b.is(Kind::kText)) {
    rt.scan(static_cast<int64_t>(std::min(a.text.size(), b.text.size())));
    const int order = a.text.compare(b.text);
    return (order > 0) - (order < 0);
  }
  if (a.is(Kind::kList) && b.is(Kind::kList)) {
    const std::vector<Value>&x = a.list->items, &y = b.list->items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      rt.step();
      if (!equal(rt, x[i], y[i], depth + 1)) return compare(rt, x[i], y[i], depth + 1);
    }
    return (x.size() > y.size()) - (x.size() < y.size());
  }
  need_defined(rt, a);
  need_defined(rt, b);
  rt.fail("no order between '{}' and '{}'", kind_name(a), kind_name(b));
}

bool contains(Runtime& rt, const Value& whole, const Value& part) {
  switch (whole.kind) {
    case Kind::kUndefined:
      return false;
    case Kind::kText:
      need_defined(rt, part);
      if (!part.is(Kind::kText)) rt.fail("'in <string>' wants a string, not {}", kind_name(part));
      rt.scan(static_cast<int64_t>(whole.text.size()));
      return whole.text.find(part.text) != std::string_view::npos;
    case Kind::kList:
      for (const Value& item : whole.list->items) {
        rt.step();
        if (equal(rt, item, part)) return true;
      }
      return false;
    case Kind::kDict:
      return find_key(rt, *whole.dict, part) != nullptr;
    default:
      rt.fail("'in' wants a text, a list or a dict, not '{}'", kind_name(whole));
  }
}

bool holds(Runtime& rt, Op op, const Value& a, const Value& b) {
  switch (op) {
    case Op::kEqual:
      return equal(rt, a, b);
    case Op::kNotEqual:
      return !equal(rt, a, b);
    case Op::kIn:
      return contains(rt, b, a);
    case Op::kNotIn:
      return !contains(rt, b, a);
    default:
      break;
  }
  if (a.is_number() && b.is_number() && (std::isnan(a.number()) || std::isnan(b.number()))) {
    return false;
  }
  const int order = compare(rt, a, b);
  if (op == Op::kLess) return order < 0;
  if (op == Op::kLessEqual) return order <= 0;
  return op == Op::kGreater ? order > 0 : order >= 0;
}

const Value* find_key(Runtime& rt, const Dict& dict, const Value& key) {
  if (key.is(Kind::kList) && !key.list->tuple) rt.fail("a list can not be a key");
  if (key.is(Kind::kDict)) rt.fail("a dict can not be a key");
  rt.step(1 + static_cast<int64_t>(dict.items.size()) / 8);
  if (key.is(Kind::kText)) {
    for (const auto& [name, value] : dict.items) {
      if (name.is(Kind::kText) && name.text == key.text) return &value;
    }
    return nullptr;
  }
  for (const auto& [name, value] : dict.items) {
    if (equal(rt, name, key)) return &value;
  }
  return nullptr;
}

const std::vector<Value>& items_of(Runtime& rt, const Value& value) {
  static const std::vector<Value> kNothing;
  switch (value.kind) {
    case Kind::kUndefined:
      return kNothing;
    case Kind::kList:
      rt.step(static_cast<int64_t>(value.list->items.size()));
      return value.list->items;
    case Kind::kDict: {
      List* keys = rt.list(static_cast<int64_t>(value.dict->items.size()));
      for (const auto& item : value.dict->items) keys->items.push_back(item.first);
      rt.step(static_cast<int64_t>(keys->items.size()));
      return keys->items;
    }
    case Kind::kText: {
      List* letters = rt.list(count_characters(value.text));
      for (size_t at = 0; at < value.text.size();) {
        const size_t bytes = utf8_bytes_of_lead(value.text[at]);
        letters->items.push_back(Value::of_text(value.text.substr(at, bytes)));
        at += bytes;
      }
      rt.step(static_cast<int64_t>(letters->items.size()));
      return letters->items;
    }
    default:
      rt.fail("'{}' has no items to go through", kind_name(value));
  }
}

int64_t length_of(Runtime& rt, const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return 0;
    case Kind::kText:
      rt.scan(static_cast<int64_t>(value.text.size()));
      return count_characters(value.text);
    case Kind::kList:
      return static_cast<int64_t>(value.list->items.size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict->items.size());
    default:
      rt.fail("'{}' has no length", kind_name(value));
  }
}

}  // namespace moraine::jinja
