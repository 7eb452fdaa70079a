// What stands behind `is`.
#include "chat/jinja/function.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/python_text.h"
#include "chat/jinja/text_filters.h"

namespace moraine::jinja {
namespace {

int64_t whole_of(Runtime& rt, const Value& value, const char* test) {
  need_defined(rt, value);
  if (!value.is_whole()) rt.fail("'{}' wants a whole number, not '{}'", test, kind_name(value));
  return value.whole();
}

#define MR_TEST(name, expression)                                                                \
  Value name([[maybe_unused]] Runtime& rt, const Value& self, [[maybe_unused]] const Bound& a) { \
    return Value::of_bool(expression);                                                           \
  }

MR_TEST(is_defined, !self.is(Kind::kUndefined))
MR_TEST(is_undefined, self.is(Kind::kUndefined))
MR_TEST(is_none, self.is(Kind::kNone))
MR_TEST(is_boolean, self.is(Kind::kBool))
MR_TEST(is_true, self.is(Kind::kBool) && self.boolean)
MR_TEST(is_false, self.is(Kind::kBool) && !self.boolean)
MR_TEST(is_integer, self.is(Kind::kInt))
MR_TEST(is_float, self.is(Kind::kFloat))
MR_TEST(is_number, self.is_number())
MR_TEST(is_string, self.is(Kind::kText))
MR_TEST(is_mapping, self.is(Kind::kDict))
MR_TEST(is_sequence, self.is(Kind::kText) || self.is(Kind::kList) || self.is(Kind::kDict))
MR_TEST(is_iterable, self.is(Kind::kText) || self.is(Kind::kList) || self.is(Kind::kDict) ||
                         self.is(Kind::kUndefined))
MR_TEST(is_callable, self.is(Kind::kFunction) || self.is(Kind::kLoop))
MR_TEST(is_escaped, self.is(Kind::kUndefined) && false)
MR_TEST(is_odd, whole_of(rt, self, "odd") % 2 != 0)
MR_TEST(is_even, whole_of(rt, self, "even") % 2 == 0)
MR_TEST(is_lower, truth(method_is(rt, Value::of_text(to_text(rt, self)), "islower")))
MR_TEST(is_upper, truth(method_is(rt, Value::of_text(to_text(rt, self)), "isupper")))
MR_TEST(is_in, holds(rt, Op::kIn, self, a.values[0]))
MR_TEST(is_eq, holds(rt, Op::kEqual, self, a.values[0]))
MR_TEST(is_ne, holds(rt, Op::kNotEqual, self, a.values[0]))
MR_TEST(is_gt, holds(rt, Op::kGreater, self, a.values[0]))
MR_TEST(is_ge, holds(rt, Op::kGreaterEqual, self, a.values[0]))
MR_TEST(is_lt, holds(rt, Op::kLess, self, a.values[0]))
MR_TEST(is_le, holds(rt, Op::kLessEqual, self, a.values[0]))
MR_TEST(is_filter, find_filter(to_text(rt, self)) != nullptr)
MR_TEST(is_test, find_test(to_text(rt, self)) != nullptr)

#undef MR_TEST

Value is_divisibleby(Runtime& rt, const Value& self, const Bound& a) {
  const int64_t by = whole_of(rt, a.values[0], "divisibleby");
  if (by == 0) rt.fail("division by zero");
  return Value::of_bool(by == -1 || whole_of(rt, self, "divisibleby") % by == 0);
}

// The same object: of what is copied, the same value and kind.
Value is_sameas(Runtime& rt, const Value& self, const Bound& a) {
  const Value& other = a.values[0];
  if (self.kind != other.kind) return Value::of_bool(false);
  if (self.is(Kind::kList)) return Value::of_bool(self.list == other.list);
  if (self.is(Kind::kDict)) return Value::of_bool(self.dict == other.dict);
  return Value::of_bool(equal(rt, self, other));
}

const BuiltIn kTests[] = {
    {.name = "defined", .parameters = "", .run = is_defined},
    {.name = "undefined", .parameters = "", .run = is_undefined},
    {.name = "none", .parameters = "", .run = is_none},
    {.name = "boolean", .parameters = "", .run = is_boolean},
    {.name = "true", .parameters = "", .run = is_true},
    {.name = "false", .parameters = "", .run = is_false},
    {.name = "integer", .parameters = "", .run = is_integer},
    {.name = "float", .parameters = "", .run = is_float},
    {.name = "number", .parameters = "", .run = is_number},
    {.name = "string", .parameters = "", .run = is_string},
    {.name = "mapping", .parameters = "", .run = is_mapping},
    {.name = "sequence", .parameters = "", .run = is_sequence},
    {.name = "iterable", .parameters = "", .run = is_iterable},
    {.name = "callable", .parameters = "", .run = is_callable},
    {.name = "escaped", .parameters = "", .run = is_escaped},
    {.name = "odd", .parameters = "", .run = is_odd},
    {.name = "even", .parameters = "", .run = is_even},
    {.name = "divisibleby", .parameters = "num", .run = is_divisibleby},
    {.name = "lower", .parameters = "", .run = is_lower},
    {.name = "upper", .parameters = "", .run = is_upper},
    {.name = "sameas", .parameters = "other", .run = is_sameas},
    {.name = "in", .parameters = "seq", .run = is_in},
    {.name = "==", .parameters = "other", .run = is_eq},
    {.name = "eq", .parameters = "other", .run = is_eq},
    {.name = "equalto", .parameters = "other", .run = is_eq},
    {.name = "!=", .parameters = "other", .run = is_ne},
    {.name = "ne", .parameters = "other", .run = is_ne},
    {.name = ">", .parameters = "other", .run = is_gt},
    {.name = "gt", .parameters = "other", .run = is_gt},
    {.name = "greaterthan", .parameters = "other", .run = is_gt},
    {.name = ">=", .parameters = "other", .run = is_ge},
    {.name = "ge", .parameters = "other", .run = is_ge},
    {.name = "<", .parameters = "other", .run = is_lt},
    {.name = "lt", .parameters = "other", .run = is_lt},
    {.name = "lessthan", .parameters = "other", .run = is_lt},
    {.name = "<=", .parameters = "other", .run = is_le},
    {.name = "le", .parameters = "other", .run = is_le},
    {.name = "filter", .parameters = "", .run = is_filter},
    {.name = "test", .parameters = "", .run = is_test},
};

}  // namespace

const BuiltIn* find_test(std::string_view name) {
  for (const BuiltIn& f : kTests) {
    if (f.name == name) return &f;
  }
  return nullptr;
}

}  // namespace moraine::jinja
