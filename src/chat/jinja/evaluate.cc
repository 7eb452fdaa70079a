// Expressions to values.
#include <algorithm>

#include "chat/jinja/interpreter.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/python_text.h"

namespace moraine::jinja {

const Value* Interpreter::find_name(int32_t name) const {
  for (const Scope* s = scope_; s != nullptr; s = s->around) {
    rt_.step(static_cast<int64_t>(s->names.size()) / 8);
    for (const auto& [index, value] : s->names) {
      if (index == name) return &value;
    }
  }
  return nullptr;
}

void Interpreter::set_name(int32_t name, const Value& value) {
  for (auto& [index, old] : scope_->names) {
    if (index == name) {
      old = value;
      return;
    }
  }
  rt_.take(sizeof(Value));
  scope_->names.emplace_back(name, value);
}

Value Interpreter::evaluate(const Expression& e) {
  const Level level(rt_, &depth_, rt_.limits().depth, "it calls itself, or is nested,");
  rt_.step();
  rt_.at_line(e.line);
  return evaluate_kind(e);
}

Value Interpreter::evaluate_kind(const Expression& e) {
  using Kind = Expression::Kind;
  switch (e.kind) {
    case Kind::kConstant:
      return e.constant;
    case Kind::kName:
      return evaluate_name(e);
    case Kind::kList:
    case Kind::kTuple:
      return evaluate_list(e);
    case Kind::kDict:
      return evaluate_dict(e);
    case Kind::kUnary:
      return evaluate_unary(e);
    case Kind::kBinary:
      return evaluate_binary(e);
    case Kind::kCompare:
      return evaluate_compare(e);
    case Kind::kConcat:
      return evaluate_concat(e);
    case Kind::kCondition:
      if (truth(evaluate(*e.items[1]))) return evaluate(*e.items[0]);
      return e.items[2] ? evaluate(*e.items[2]) : Value::undefined("an if without else");
    case Kind::kAttribute: {
      const Value value = evaluate(*e.items[0]);
      rt_.at_line(e.line);
      return attribute_of(rt_, value, e.text);
    }
    case Kind::kItem: {
      const Value value = evaluate(*e.items[0]);
      const Value key = evaluate(*e.items[1]);
      rt_.at_line(e.line);
      return item_of(rt_, value, key);
    }
    case Kind::kSlice:
      return evaluate_slice(e);
    case Kind::kCall:
      return evaluate_call(e, nullptr);
    case Kind::kFilter:
      return evaluate_filter(e, nullptr);
    case Kind::kTest:
      return evaluate_test(e);
  }
  return Value();
}

Value Interpreter::evaluate_name(const Expression& e) {
  if (const Value* value = find_name(e.name)) return *value;
  if (const BuiltIn* global = find_global(e.text)) {
    return Value::of_function(rt_.function({.built_in = global}));
  }
  return Value::undefined(rt_.text(fmt::format("'{}'", e.text.substr(0, 100))).text);
}

Value Interpreter::evaluate_list(const Expression& e) {
  List* list = rt_.list(static_cast<int64_t>(e.items.size()));
  list->tuple = e.kind == Expression::Kind::kTuple;
  for (const ExpressionPtr& item : e.items) list->items.push_back(evaluate(*item));
  return Value::of_list(list);
}

Value Interpreter::evaluate_dict(const Expression& e) {
  Dict* dict = rt_.dict();
  for (size_t i = 0; i < e.items.size(); i += 2) {
    const Value key = evaluate(*e.items[i]);
    rt_.put(dict, key, evaluate(*e.items[i + 1]));
  }
  return Value::of_dict(dict);
}

Value Interpreter::evaluate_unary(const Expression& e) {
  const Value value = evaluate(*e.items[0]);
  rt_.at_line(e.line);
  if (e.op == Op::kNot) return Value::of_bool(!truth(value));
  if (e.op == Op::kNegate) return negate(rt_, value);
  need_defined(rt_, value);
  if (!value.is_number()) rt_.fail("bad operand for unary +: '{}'", kind_name(value));
  return value.is(Kind::kBool) ? Value::of_int(value.whole()) : value;
}

Value Interpreter::evaluate_binary(const Expression& e) {
  const Value left = evaluate(*e.items[0]);
  if (e.op == Op::kAnd) return truth(left) ? evaluate(*e.items[1]) : left;
  if (e.op == Op::kOr) return truth(left) ? left : evaluate(*e.items[1]);
  const Value right = evaluate(*e.items[1]);
  rt_.at_line(e.line);
  return arithmetic(rt_, e.op, left, right);
}

Value Interpreter::evaluate_compare(const Expression& e) {
  Value left = evaluate(*e.items[0]);
  for (size_t i = 0; i < e.ops.size(); ++i) {
    const Value right = evaluate(*e.items[i + 1]);
    rt_.at_line(e.line);
    if (!holds(rt_, e.ops[i], left, right)) return Value::of_bool(false);
    left = right;
  }
  return Value::of_bool(true);
}

Value Interpreter::evaluate_concat(const Expression& e) {
  TextBuilder out(rt_);
  for (const ExpressionPtr& item : e.items) out.add(to_text(rt_, evaluate(*item)));
  rt_.scan(static_cast<int64_t>(out.string().size()));
  return out.done();
}

Value Interpreter::evaluate_filter(const Expression& e, const Value* input) {
  // A chain that begins a {% filter %} or {% set %} block ends in the block's text.
  Value value;
  if (e.items[0] == nullptr) {
    value = *input;
  } else if (input != nullptr) {
    value = evaluate_filter(*e.items[0], input);
  } else {
    value = evaluate(*e.items[0]);
  }
  rt_.at_line(e.line);
  if (e.built_in == nullptr) fail_unknown(rt_, "filter", e.text);
  const Arguments arguments = evaluate_arguments(e);
  rt_.at_line(e.line);
  return call_built_in(rt_, *e.built_in, value, arguments);
}

Value Interpreter::evaluate_test(const Expression& e) {
  const Value value = evaluate(*e.items[0]);
  rt_.at_line(e.line);
  if (e.built_in == nullptr) fail_unknown(rt_, "test", e.text);
  const Arguments arguments = evaluate_arguments(e);
  rt_.at_line(e.line);
  return Value::of_bool(truth(call_built_in(rt_, *e.built_in, value, arguments)));
}

Value Interpreter::evaluate_slice(const Expression& e) {
  const Value value = evaluate(*e.items[0]);
  Value parts[3];
  for (int i = 0; i < 3; ++i) {
    if (e.items[i + 1] != nullptr) {
      parts[i] = evaluate(*e.items[i + 1]);
      need_defined(rt_, parts[i]);
    }
  }
  rt_.at_line(e.line);
  return slice_of(rt_, value, parts[0], parts[1], parts[2]);
}

}  // namespace moraine::jinja
