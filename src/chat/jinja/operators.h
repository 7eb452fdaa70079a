// Operators: what Python does with two values, as templates see it.
//
// Errors: kInvalidArgument for kinds that do not go together, overflow of 64 bits, division by zero.
#pragma once

#include <string_view>
#include <vector>

#include "chat/jinja/runtime.h"
#include "chat/jinja/value.h"

namespace moraine::jinja {

enum class Op : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kAnd,
  kOr,
  kNot,
  kNegate,
  kPlus,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

const char* kind_name(const Value& value);  // as Python calls it: "str"
bool truth(const Value& value);
Value arithmetic(Runtime& rt, Op op, const Value& a, const Value& b);
Value negate(Runtime& rt, const Value& a);
bool equal(Runtime& rt, const Value& a, const Value& b, int64_t depth = 0);
// -1, 0, 1. Errors: kinds without order.
int compare(Runtime& rt, const Value& a, const Value& b, int64_t depth = 0);
bool holds(Runtime& rt, Op op, const Value& a, const Value& b);  // kEqual ... kNotIn
bool contains(Runtime& rt, const Value& whole, const Value& part);

// `strict`: an undefined value is an error, as in Jinja.
Value attribute_of(Runtime& rt, const Value& value, std::string_view name);
Value item_of(Runtime& rt, const Value& value, const Value& key);
// Parts that are left out are undefined.
Value slice_of(Runtime& rt, const Value& value, const Value& begin, const Value& end,
               const Value& step);
const Value* find_key(Runtime& rt, const Dict& dict, const Value& key);

// The items that a loop over the value sees. Errors: what has none.
const std::vector<Value>& items_of(Runtime& rt, const Value& value);
int64_t length_of(Runtime& rt, const Value& value);

[[noreturn]] void fail_undefined(Runtime& rt, const Value& value);
inline void need_defined(Runtime& rt, const Value& value) {
  if (value.is(Kind::kUndefined)) fail_undefined(rt, value);
}

}  // namespace moraine::jinja
